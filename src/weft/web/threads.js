// The list of threads, the search over all of them, and the deleted threads.

import { ago, button, byId, el, plural, reconcile, refill } from "./dom.js";
import { get } from "./api.js";
import { effect } from "./signals.js";
import { state } from "./state.js";

const SEARCH_DELAY = 200; // milliseconds after the last key before a search starts
const PAGE = 500; // threads that are listed at first, and that "Show more" adds
const RELOAD_DELAY = 1000; // the list is read at most this often, in milliseconds

export class Threads {
	constructor({ onpick, onhit, onrestore }) {
		this.onpick = onpick;
		this.onhit = onhit;
		this.onrestore = onrestore;
		this.list = byId("threads");
		this.limit = PAGE;
		this.runs = [];
		this.entries = new Map(); // by name: {json, node}
		this.missing = new Set(); // running threads that the list does not show
		effect(() => this.select());
		this.field = byId("search");
		this.field.addEventListener("input", () => {
			clearTimeout(this.timer);
			this.timer = setTimeout(() => this.load(), SEARCH_DELAY);
		});
	}

	/** Read the list again. */
	async load() {
		const query = this.field.value.trim();
		try {
			const [{ threads, total, recording }, deleted] = await Promise.all([
				get("/api/threads", query ? { q: query, limit: this.limit } : { limit: this.limit }),
				get("/api/deleted"),
			]);
			this.show(threads, query, total);
			this.showDeleted(deleted.threads);
			showRecording(recording);
			return threads;
		} catch (error) {
			refill(this.list, el("li.error", error.message));
			return [];
		}
	}

	/** Something in the list has changed: read it again, but not more often than people can see. */
	changed() {
		this.reloading ??= setTimeout(() => {
			this.reloading = null;
			this.load();
		}, RELOAD_DELAY);
	}

	/** Mark the open thread. */
	select() {
		const { thread } = state;
		for (const entry of this.list.querySelectorAll(".thread")) {
			if (entry.dataset.thread === thread) entry.setAttribute("aria-current", "page");
			else entry.removeAttribute("aria-current");
		}
	}

	show(threads, query, total) {
		const old = this.entries;
		this.entries = new Map();
		const nodes = nest(threads).map(([thread, children]) => this.place(thread, children, old));
		const text = query ? `Nothing matches “${query}”.` : "No threads yet.";
		const rest = total - this.limit;
		const more = () => button(`Show more (${rest})`, () => this.showMore(), { class: "quiet more" });
		if (rest > 0) nodes.push(el("li", more()));
		if (!nodes.length) nodes.push(el("li.empty.small", text));
		reconcile(this.list, nodes);
		this.select();
		this.showRuns();
	}

	showMore() {
		this.limit += PAGE;
		return this.load();
	}

	/** The node of a thread; the old one, if nothing in it has changed. */
	place(thread, children, old) {
		const json = JSON.stringify([thread, children, ago(thread.updated)]);
		const known = old.get(thread.name);
		const node = known?.json === json ? known.node : this.entry(thread, children);
		const panel = known?.node.querySelector(".children");
		if (panel && node !== known.node) node.querySelector(".children")?.toggleAttribute("open", panel.open);
		this.entries.set(thread.name, { json, node });
		return node;
	}

	entry(thread, children = []) {
		const branches = thread.branches > 1 ? plural(thread.branches, "branch", "branches") : "";
		const name = thread.title ? thread.name : "";
		const facts = [ago(thread.updated), branches, name].filter(Boolean).join(" · ");
		const pick = el(
			"button",
			{
				type: "button",
				class: "thread",
				"data-thread": thread.name,
				title: thread.name,
				onclick: () => this.onpick(thread.name),
			},
			el("span.thread-name", thread.title ?? thread.name),
			el("span.thread-facts.muted", facts),
			el("span.running-mark", "answering …"),
		);
		const hits = (thread.hits ?? []).map((hit) =>
			el(
				"button",
				{ type: "button", class: "hit", onclick: () => this.onhit(thread.name, hit) },
				hit.kind === "message" ? null : el("b.hit-kind", hit.kind),
				hit.text,
			),
		);
		return el("li", pick, ...hits, this.nested(children));
	}

	/** Subagents and side requests of a session, in one line that opens. */
	nested(children) {
		if (!children.length) return null;
		const list = el("ul", ...children.map((child) => this.entry(child)));
		const isOpen = children.some(({ name, hits }) => name === state.thread || hits);
		const label = `${plural(children.length, "side thread")}`;
		return el("details.children", { open: isOpen }, el("summary", label), list);
	}

	/** Threads that were deleted and can be restored. */
	showDeleted(threads) {
		const box = byId("deleted");
		box.hidden = !threads.length;
		box.querySelector("summary").textContent = `Deleted threads (${threads.length})`;
		const restore = (name) => button("Restore", () => this.onrestore(name));
		const rows = threads.map(({ name, deleted }) => {
			const label = el("span.thread-name", name);
			return el("li", { title: `${name}, deleted ${ago(deleted)}` }, label, restore(name));
		});
		refill(byId("deleted-list"), ...rows);
	}

	/** Mark the threads with a run; reload the list if it lacks one of them. */
	mark(runs) {
		this.runs = runs;
		const missing = new Set(runs.map(({ thread }) => thread));
		for (const entry of this.list.querySelectorAll(".thread")) missing.delete(entry.dataset.thread);
		const isNew = [...missing].some((name) => !this.missing.has(name));
		this.missing = missing;
		if (isNew) this.load();
		else this.showRuns();
	}

	showRuns() {
		const running = new Map(this.runs.map(({ thread, waiting }) => [thread, waiting]));
		for (const entry of this.list.querySelectorAll(".thread")) {
			const name = entry.dataset.thread;
			entry.toggleAttribute("data-running", running.has(name));
			const status = running.get(name) ? "waits for you" : "answering …";
			entry.querySelector(".running-mark").textContent = status;
		}
	}
}

/** Threads with their children. A child names its parent, or has its name as prefix: `SESSION.AGENT`.
 *  A child whose parent is not in the list stands for itself. */
function nest(threads) {
	const names = new Set(threads.map(({ name }) => name));
	const parentOf = ({ name, parent }) => {
		if (parent && names.has(parent)) return parent;
		for (let end = name.lastIndexOf("."); end > 0; end = name.lastIndexOf(".", end - 1)) {
			if (names.has(name.slice(0, end))) return name.slice(0, end);
		}
		return null;
	};
	const children = new Map();
	const roots = [];
	for (const thread of threads) {
		const parent = parentOf(thread);
		if (parent === null) roots.push(thread);
		else children.set(parent, [...(children.get(parent) ?? []), thread]);
	}
	const descendants = ({ name }) =>
		(children.get(name) ?? []).flatMap((child) => [child, ...descendants(child)]);
	return roots.map((root) => [root, descendants(root)]);
}

/** Show a warning while exchanges are not recorded in the store. */
function showRecording({ state, pending = 0, lost = 0 }) {
	const problems = [];
	if (state === "journal") {
		problems.push(
			`The store accepts no records; ${plural(pending, "record waits", "records wait")} in the journal.`,
		);
	}
	if (lost) problems.push(`${plural(lost, "record was", "records were")} lost: see the server's log.`);
	const line = byId("recording");
	line.textContent = problems.join(" ");
	line.hidden = !problems.length;
}
