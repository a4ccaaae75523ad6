// One row of a thread: its header, its parts, and what is shown before and after it.
//
// A row is patched, not built again: parts that have not changed keep their nodes, and the panel of
// a tool call is updated in place when its result arrives.

import { button, clock, count, el, keepOpen, plural, reconcile, trusted } from "./dom.js";
import { mediaNode } from "./attachments.js";
import { dollars } from "./usage.js";
import { grip } from "./merge.js";
import { ToolPanel } from "./tool_panel.js";

const SPEAKERS = {
	user: "You",
	assistant: "Assistant",
	system: "System",
	developer: "System",
	tool: "Tool",
};
const HIDDEN = ["checkpoint"];
const FOLDED = 20_000; // characters of a text above which only its beginning is shown
const SYSTEM = ["system", "developer"];

export class RowItem {
	/** `actions`: {pin, skip, restore, openCommit, openVersion, permalink}; `address()` names thread and
	 *  branch. */
	constructor({ actions, address }) {
		this.actions = actions;
		this.address = address;
		this.node = el("li", { tabindex: -1 });
		this.head = el("header.who");
		this.body = el("div.body");
		this.parts = new Map();
		this.before = [];
		this.after = [];
	}

	get nodes() {
		return [...this.before, this.node, ...this.after];
	}

	/** Show a row; `extras()` makes the nodes before and after it, if `key` has changed. */
	update(row, key, extras) {
		const json = JSON.stringify(row);
		if (json !== this.json) this.setRow(row);
		this.json = json;
		if (key !== this.key) {
			const { before, after } = extras();
			after.forEach((node, index) => this.after[index] && keepOpen(this.after[index], node));
			Object.assign(this, { before, after, key });
		}
	}

	setRow(row) {
		this.row = row;
		const shown = row.parts.filter(({ type, merged }) => !merged && !HIDDEN.includes(type));
		this.node.dataset.id = row.id;
		this.node.hidden = !shown.length; // its results are shown with their calls
		this.node.className = shown.length
			? `row ${side(row.role)} ${row.kind} ${row.priority}`
			: "row merged";
		this.setHead(row);
		this.setParts(shown);
		this.wrap(row);
	}

	setHead(row) {
		const focused = this.head.contains(document.activeElement)
			? document.activeElement.dataset.act
			: null;
		const isReminder = row.parts.every(({ type }) => ["reminder", "checkpoint"].includes(type));
		const speaker = isReminder ? "Weft" : (SPEAKERS[row.role] ?? row.role); // the agent loop wrote it
		const badge = { pinned: "pinned", important: "important", skip: "skipped" }[row.priority];
		this.head.replaceChildren(
			row.id && row.kind !== "summary" ? grip(row.id) : "",
			el("span.name", row.kind === "summary" ? "Summary" : speaker),
			...(badge ? [el("span.badge", badge)] : []),
			...(row.edited ? [this.edited(row.edited)] : []),
			...(row.versions ? [this.versions(row.versions)] : []),
			...this.facts(row),
			el("span.acts", ...this.acts(row), this.actions.menu(row)),
		);
		if (focused) this.head.querySelector(`[data-act="${focused}"]`)?.focus({ preventScroll: true });
	}

	/** A mark that leads to what the message was before. */
	edited({ commit, created }) {
		const title = `Edited ${clock(created)}: show what it was before`;
		return button("edited", () => this.actions.openCommit(commit), { class: "badge edited", title, "data-act": "edited" });
	}

	/** "‹ 2/3 ›": the versions of this message on other branches. */
	versions(versions) {
		const number = versions.findIndex(({ current }) => current);
		const step = (name, sign, label, by) =>
			button(sign, () => this.actions.openVersion(versions[number + by], name), {
				"data-act": name,
				"aria-label": `${label} version of this message`,
				title: versions[number + by] && `On branch ${versions[number + by].branch}`,
				disabled: !versions[number + by],
			});
		return el(
			"span.versions",
			{ role: "group", "aria-label": "Versions of this message" },
			step("previous", "‹", "Previous", -1),
			`${number + 1}/${versions.length}`,
			step("next", "›", "Next", 1),
		);
	}

	facts(row) {
		const { created, model, usage } = row;
		const facts = [];
		if (created) {
			const date = new Date(created * 1000);
			const label = clock(created);
			const title = `${date.toLocaleString()}: link to this message`;
			const link = { class: "time", href: this.actions.permalink(row.id), title };
			facts.push(el("a", link, el("time", { datetime: date.toISOString() }, label)));
		}
		if (model && row.role === "assistant") facts.push(el("span.tokens.model", model));
		const price = usage ? `, ${dollars(usage.cost)}` : "";
		const first = row.first_token === null ? "" : ` (first token ${duration(row.first_token)})`;
		const took = row.seconds === null ? "" : `, ${duration(row.seconds)}${first}`;
		const end = row.stop ? `, ${row.stop}` : "";
		const reported = usage?.output
			? `${count(usage.input)} in, ${count(usage.output)} out${price}${took}${end}`
			: plural(row.tokens, "token");
		facts.push(el("span.tokens.usage", { title: reported }, reported));
		return facts;
	}

	acts(row) {
		const act = (name, label, run, title) =>
			button(label, () => run(row.id), { title, "data-act": name, "data-now": true }); // not for an earlier commit
		if (row.priority === "pinned" || row.priority === "skip") {
			const label = row.priority === "skip" ? "Include again" : "Unpin";
			return [act("restore", label, this.actions.restore, "Back to normal")];
		}
		return [
			act("pin", "Pin", this.actions.pin, "Every compaction keeps this message as it is"),
			act("skip", "Skip", this.actions.skip, "Leave this message out of what the model sees"),
		];
	}

	setParts(parts) {
		const old = this.parts;
		this.parts = new Map();
		const nodes = parts.map((part, index) => {
			const key = part.type === "call" ? `call:${part.id}` : `${part.type}:${index}`;
			const view = patchPart(old.get(key), part, key, this.address);
			this.parts.set(key, view);
			return view.node;
		});
		reconcile(this.body, nodes);
	}

	/** Summaries and system prompts are inside a panel. */
	wrap(row) {
		const kind = row.fold ? "fold" : SYSTEM.includes(row.role) ? "prompt" : "plain";
		if (kind !== this.kind) {
			this.kind = kind;
			this.panel = kind === "plain" ? null : el("details", { class: kind, "data-key": kind });
			if (this.panel) {
				this.panel.open = kind === "fold";
				this.label = el("summary");
				this.panel.append(this.label, this.body);
			}
			if (kind === "fold") this.panel.append(this.foldButton());
		}
		if (kind === "fold") this.label.textContent = `${plural(row.fold.dropped, "message")} summarised here`;
		if (kind === "prompt") this.label.textContent = `System prompt, ${plural(row.tokens, "token")}`;
		const notes = (row.notes ?? []).map(({ text, created }) =>
			el("p.row-note", el("b", "Note "), text, el("span.tokens", ` ${clock(created)}`)),
		);
		reconcile(this.node, [this.head, this.panel ?? this.body, ...notes]);
	}

	foldButton() {
		return button("Show what was removed, or revert", () => this.actions.openCommit(this.row.fold.commit));
	}
}

/** The node of a part; the old one, if it can be kept. */
function patchPart(old, part, key, address) {
	const json = JSON.stringify(part);
	if (old?.json === json) return old;
	if (old?.panel) {
		old.panel.update(part);
		return { ...old, json };
	}
	if (part.type === "call") {
		const panel = new ToolPanel(part, address);
		return { json, panel, node: panel.node };
	}
	const node = makePart(part, key, address);
	if (old) keepOpen(old.node, node);
	return { json, node };
}

/** A node for a part that is not a tool call. */
export function makePart(part, key, address) {
	const make = {
		text: () => folded(trusted(el("div.prose"), part.html), part.text.length),
		plain: () => longText(part, address),
		thinking: () => thinkingPanel(part.text, key),
		injected: () => injectedPanel(part, key),
		media: () => mediaNode(part, address()),
		call: () => new ToolPanel(part, address).node,
		result: () => resultPanel(part, address).node,
		note: () => el("p.note", part.text),
		reminder: () => el("p.note", part.text),
	}[part.type];
	return make ? make() : el("p.note", part.type);
}

/** A very long text: its beginning, and a button that shows the rest. */
function folded(node, length) {
	if (length <= FOLDED) return node;
	const box = el("div.folded", node);
	const more = button(`Show all ${plural(length, "character")}`, () => toggle(), { "aria-expanded": "false" });
	const toggle = (isOpen = box.classList.contains("folded")) => {
		box.classList.toggle("folded", !isOpen);
		more.textContent = isOpen ? "Show less" : `Show all ${plural(length, "character")}`;
		more.setAttribute("aria-expanded", String(isOpen));
	};
	box.addEventListener("focusin", () => toggle(true)); // nothing that has the focus is hidden
	return el("div", box, el("p", more));
}

/** A text that is too long to be rendered; of a very long one, only the beginning is sent. */
function longText(part, address) {
	const text = folded(el("div.prose.plain", part.text), part.length ?? part.text.length);
	if (!part.address) return text;
	const fields = Object.entries({ ...address(), ...part.address }).filter(([, value]) => value != null);
	const href = `/api/media?${new URLSearchParams(fields)}`;
	const label = `Download all ${plural(part.length, "character")}`;
	return el("div", text, el("p", el("a", { href, download: "message.txt" }, label)));
}

export function thinkingPanel(text, key) {
	return el(
		"details.thinking",
		{ "data-key": key },
		el("summary", "Thinking"),
		el("pre", text),
	);
}

/** Text that a client added to the user's message, such as a system reminder. */
function injectedPanel(part, key) {
	const label = part.name.replaceAll(/[-_]/g, " ");
	return el(
		"details.injected",
		{ "data-key": key },
		el("summary", `${label}, ${plural(part.length, "character")}`),
		el("pre", part.text),
	);
}

/** A result whose call is not in the thread. */
function resultPanel({ call_id, content, is_error, length, media }, address) {
	const result = { content, is_error, length, media };
	return new ToolPanel({ id: call_id, name: "result", input: {}, result }, address);
}

/** "1.4 s" */
function duration(seconds) {
	return seconds < 0.1 ? "<0.1 s" : `${seconds.toFixed(1)} s`;
}

function side(role) {
	if (role === "tool") return "results";
	return Object.hasOwn(SPEAKERS, role) ? role : "other";
}
