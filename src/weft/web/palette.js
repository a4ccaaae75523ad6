// The command palette: one box that finds commands, threads and branches, and the list of shortcuts.
//
// The focus stays in the box; `aria-activedescendant` names the selected entry.

import { byId, el, refill } from "./dom.js";
import {
	allCommands,
	available,
	register,
	runEntry,
	setSingleKeys,
	shortcutLabel,
	singleKeys,
	sourceEntries,
} from "./commands.js";

const COMMANDS = "Commands";
const COMMANDS_ONLY = ">"; // a query that begins with it finds commands only
const MOST = 50; // entries that are shown
const FOUND = 20; // the least score of an entry that the server has matched
const DELAY = 120; // milliseconds after the last key before the server is asked

export class Palette {
	constructor() {
		this.dialog = byId("palette");
		this.input = byId("palette-query");
		this.list = byId("palette-list");
		this.entries = [];
		this.selected = 0;
		this.searches = 0;
		this.input.addEventListener("input", () => this.search());
		this.input.addEventListener("keydown", (event) => this.key(event));
		this.list.addEventListener("click", (event) => {
			const option = event.target.closest("[role=option]");
			if (option) this.choose(Number(option.dataset.index));
		});
		byId("open-palette").addEventListener("click", () => this.open());
		register({
			name: "palette.open",
			title: "Command palette",
			shortcut: "Mod+K",
			run: () => this.open(),
		});
		register({
			name: "shortcuts.show",
			title: "Keyboard shortcuts",
			shortcut: "?",
			run: showShortcuts,
		});
		byId("single-keys").addEventListener("change", ({ target }) => setSingleKeys(target.checked));
	}

	open(query = "") {
		this.input.value = query;
		this.dialog.showModal();
		return this.search();
	}

	async search() {
		const number = ++this.searches;
		const text = this.input.value.trim();
		const isCommand = text.startsWith(COMMANDS_ONLY);
		const query = isCommand ? text.slice(COMMANDS_ONLY.length).trim() : text;
		const commands = available()
			.filter(({ name }) => name !== "palette.open")
			.map((command) => ({ ...command, group: COMMANDS }));
		this.show(rank(commands, query));
		if (isCommand) return;
		if (query) await new Promise((resolve) => setTimeout(resolve, DELAY));
		if (number !== this.searches) return;
		const others = await sourceEntries(query);
		if (number === this.searches) this.show([...rank(commands, query), ...rank(others, query)]);
	}

	show(entries) {
		const groups = new Map();
		const sorted = this.input.value.trim() ? [...entries].sort((a, b) => b.score - a.score) : entries;
		for (const entry of sorted.slice(0, MOST)) {
			groups.set(entry.group, [...(groups.get(entry.group) ?? []), entry]);
		}
		this.entries = [...groups.values()].flat();
		let index = 0;
		const nodes = [...groups].map(([group, list]) =>
			el(
				"div",
				{ role: "group", "aria-label": group },
				el("div.palette-group", { "aria-hidden": "true" }, group),
				...list.map((entry) => option(entry, index++)),
			),
		);
		refill(this.list, ...nodes);
		byId("palette-none").hidden = this.entries.length > 0;
		this.select(0);
	}

	select(index) {
		const options = this.list.querySelectorAll("[role=option]");
		options[this.selected]?.setAttribute("aria-selected", "false");
		this.selected = Math.max(0, Math.min(index, options.length - 1));
		const node = options[this.selected];
		node?.setAttribute("aria-selected", "true");
		node?.scrollIntoView({ block: "nearest" });
		if (node) this.input.setAttribute("aria-activedescendant", node.id);
		else this.input.removeAttribute("aria-activedescendant");
	}

	key(event) {
		const { length } = this.entries;
		const moves = {
			ArrowDown: () => this.select((this.selected + 1) % (length || 1)),
			ArrowUp: () => this.select((this.selected + length - 1) % (length || 1)),
			PageDown: () => this.select(this.selected + 10),
			PageUp: () => this.select(this.selected - 10),
			Enter: () => this.choose(this.selected),
		};
		if (!moves[event.key] || event.isComposing) return;
		event.preventDefault();
		moves[event.key]();
	}

	choose(index) {
		const entry = this.entries[index];
		if (!entry) return;
		this.dialog.close(); // first: the command may open a dialog, or move the focus
		runEntry(entry);
	}
}

function option({ title, hint, shortcut }, index) {
	const right = shortcut ? el("kbd", shortcutLabel(shortcut)) : null;
	return el(
		"div",
		{ role: "option", id: `palette-${index}`, "data-index": index, "aria-selected": "false" },
		el("span.palette-title", title),
		hint ? el("span.muted", hint) : null,
		right,
	);
}

/** The entries that match a query, best first. */
function rank(entries, text) {
	return entries
		.map((entry) => ({ ...entry, score: entryScore(text, entry) }))
		.filter((entry) => entry.score > 0)
		.sort((a, b) => b.score - a.score);
}

function entryScore(text, { title, hint, isFound }) {
	return Math.max(isFound ? FOUND : 0, score(text, title, hint ?? ""));
}

/** How well a text matches: at the start of the title, of a word, anywhere, or letter by letter. */
export function score(text, title, hint = "") {
	const [needle, haystack] = [text.toLowerCase(), title.toLowerCase()];
	if (!needle) return 1;
	const at = haystack.indexOf(needle);
	if (at === 0) return 100;
	if (at > 0) return /[\s\-_/.:]/.test(haystack[at - 1]) ? 80 : 60;
	if (hint.toLowerCase().includes(needle)) return 40;
	let position = 0;
	let gaps = 0;
	for (const letter of needle.replaceAll(/\s/g, "")) {
		const next = haystack.indexOf(letter, position);
		if (next < 0) return 0;
		gaps += next - position;
		position = next + 1;
	}
	return Math.max(1, 30 - gaps);
}

/** Show every command that has a key. */
function showShortcuts() {
	const rows = allCommands()
		.filter(({ shortcut }) => shortcut)
		.map(({ title, shortcut }) =>
			el("tr", el("td", el("kbd", shortcutLabel(shortcut))), el("td", title)),
		);
	refill(byId("shortcut-rows"), ...rows);
	byId("single-keys").checked = singleKeys();
	byId("shortcuts-dialog").showModal();
}
