// The log: every commit of the branch that is shown, newest first. The messages of a turn are one
// line that opens. A commit that changed earlier messages (a compaction, an edit, a merge, a revert)
// opens to what it removed, added, and kept because of pins, and can be reverted.

import { button, byId, clock, count, el, keepOpen, plural, reconcile, refill, trusted } from "./dom.js";
import { get } from "./api.js";
import { effect, watch } from "./signals.js";
import { shownBranch, state } from "./state.js";
import { say } from "./toast.js";

const SIGNS = { compact: "⚡", merge: "⋈", revert: "↺", edit: "✎", annotate: "✦", append: "•" };
const PAGE = 500; // commits that are listed at first, and that "Show more" adds
const OF_A_TURN = ["append", "setup"];

export class History {
	/** `read(id)` shows the thread as of a commit, `revert(id)` reverts one. */
	constructor({ read, revert }) {
		Object.assign(this, { read, revert });
		this.list = byId("log");
		this.entries = new Map();
		this.reads = 0;
		this.more = el("li.more-commits");
		watch(() => state.updates, () => this.load());
		effect(() => this.mark());
	}

	/** The branch of the log; if the commit that is read is on none, the commits up to it. */
	place() {
		const branch = shownBranch();
		return { thread: state.thread, branch: branch ?? state.branch, until: branch ? null : state.at };
	}

	/** Read the log, with at least as many commits as before. */
	async load(more = 0) {
		const place = this.place();
		const key = JSON.stringify(place);
		this.limit = (key === this.asked ? this.limit : PAGE) + more;
		this.asked = key;
		this.reads += 1;
		const number = this.reads; // if reads overlap, only the newest one is shown
		const log = await get("/api/log", { ...place, limit: this.limit }).catch(() => null);
		if (!log || number !== this.reads || JSON.stringify(this.place()) !== key) return;
		const old = key === this.key ? this.entries : new Map();
		Object.assign(this, { key, query: place, total: log.total, length: log.commits.length });
		this.show(log.commits, old);
	}

	show(commits, old) {
		this.entries = new Map();
		const nodes = group(commits).map((run) => this.entry(run, old));
		if (!nodes.length) nodes.push(el("li.empty.small", "No commits yet."));
		if (this.isCut) {
			const next = Math.min(PAGE, this.total - this.length);
			const show = button(`Show ${count(next)} more`, () => this.load(PAGE), { class: "quiet more" });
			refill(this.more, el("span.muted", `${count(this.length)} of ${count(this.total)} commits`), show);
			nodes.push(this.more);
		}
		reconcile(this.list, nodes);
		this.mark();
	}

	get isCut() {
		return this.length < this.total;
	}

	/** Mark the commit that is read. */
	mark() {
		const { at } = state;
		for (const node of this.list.querySelectorAll("[data-read]")) {
			if (node.dataset.read === at) node.setAttribute("aria-current", "true");
			else node.removeAttribute("aria-current");
		}
	}

	/** The entry of a run of commits; the old one, if nothing in it has changed. */
	entry(run, old) {
		const key = run.at(-1).id; // a run grows at its newer end
		const json = JSON.stringify(run);
		const known = old.get(key);
		if (known?.json === json) {
			this.entries.set(key, known);
			return known.node;
		}
		const node = run.length === 1 ? this.commit(run[0]) : this.turn(run);
		if (known) keepOpen(known.node, node);
		this.entries.set(key, { json, node });
		return node;
	}

	/** The messages of a turn, as the words that began it; its commits are listed when it opens. */
	turn(run) {
		const list = el("ul");
		const first = run.at(-1);
		const text = wordsOf(first) || plural(run.length, "commit");
		const details = el(
			"details",
			{ "data-key": "run" },
			el(
				"summary",
				el("span.sign", { "aria-hidden": "true" }, "•"),
				el("span.label", { title: text }, text),
				el("span.meta", describe(run), el("code", first.id.slice(0, 7)), ` ${clock(first.created)}`),
			),
			list,
		);
		details.addEventListener("toggle", () => {
			if (!details.open || list.childElementCount) return;
			refill(list, ...run.map((commit) => this.commit(commit)));
			this.mark();
		});
		return el("li.commit.run", details);
	}

	commit(commit) {
		const mark = commit.reverted ? "•" : (SIGNS[commit.kind] ?? "•");
		const sign = el("span.sign", { "aria-hidden": "true" }, mark);
		const isCompaction = commit.compaction && !commit.reverted;
		const words = commit.compaction ? "Compacted" : commit.label || commit.kind;
		const text = commit.reverted ? `${words}, then reverted` : words;
		const label = el("span.label", { title: text }, text);
		const meta = el("span.meta", el("code", commit.id.slice(0, 7)), ` ${clock(commit.created)}`);
		const read = { class: "read-commit", "data-read": commit.id, title: "Read the thread as of this commit" };
		const item = { class: `commit ${commit.kind}${commit.reverted ? " reverted" : ""}`, "data-commit": commit.id };
		if (!commit.rewrites) {
			const open = el("button", { type: "button", onclick: () => this.read(commit.id), ...read }, sign, label, meta);
			return el("li", item, open);
		}
		const inside = el("div.change", el("p.muted", "Reading …"));
		const saved = isCompaction
			? el(
					"span.saved",
					`${count(commit.compaction.before)} → ${count(commit.compaction.after)} tokens`,
				)
			: null;
		const details = el(
			"details",
			{ "data-change": commit.id, "data-key": commit.id },
			el("summary", { "data-read": commit.id }, sign, label, saved, meta),
			inside,
		);
		details.addEventListener("toggle", () => details.open && this.fill(inside, commit));
		return el("li", item, details);
	}

	async fill(inside, commit) {
		try {
			const { thread, branch } = this.query;
			const change = await get("/api/commit", { thread, branch, id: commit.id });
			refill(inside, ...this.change(change, commit));
		} catch (error) {
			refill(inside, el("p.error", error.message));
		}
	}

	change(change, commit) {
		const revert = button("Revert this", () => this.revert(commit.id), { class: null });
		const read = (id, label) => button(label, () => this.read(id));
		const [before] = commit.parents;
		return [
			rows("Removed", change.removed, "removed"),
			rows("Added", change.added, "added"),
			rows("Kept by pins", change.pins, "pins"),
			...reworded(change.reworded),
			el(
				"p.muted",
				`${count(change.before)} → ${count(change.after)} tokens. Later messages stay when you revert it.`,
			),
			el(
				"p.line",
				state.at ? null : revert,
				before ? read(before, "Read the thread before this") : null,
				read(commit.id, "and after it"),
			),
		];
	}

	/** Open the entry of a commit and bring it into view; it may be older than what is listed. */
	async open(id) {
		Object.assign(state, { tab: "log", logOpen: true });
		const find = () => this.list.querySelector(`[data-change="${CSS.escape(id)}"]`);
		if (JSON.stringify(this.place()) !== this.key) await this.load();
		while (!find() && this.isCut) await this.load(Math.max(PAGE, this.length));
		const details = find();
		if (!details) {
			say(`The commit ${id.slice(0, 7)} is not on this branch.`, true);
			return;
		}
		details.open = true;
		details.scrollIntoView({ block: "start", behavior: "smooth" });
		details.querySelector("summary").focus();
	}
}

/** A list of messages as excerpts that open to the whole text; `total` if the list is cut. */
export function rows(title, list, name, total = list.length) {
	if (!list.length) return null;
	const lines = list.map((row) =>
		el(
			"li",
			el(
				"details",
				el(
					"summary",
					el("b", row.role),
					` ${row.excerpt}`,
					el("span.tokens", count(row.tokens)),
				),
				trusted(el("div.prose"), row.html),
			),
		),
	);
	return el(
		"section",
		{ class: name },
		el("p.part-title", `${title} (${count(total)})`),
		el("ul.rows", ...lines),
		total > list.length ? el("p.muted", `and ${count(total - list.length)} more`) : null,
	);
}

/** Messages that stayed with other words, before and after. */
export function reworded(pairs) {
	return [
		rows("Changed, before", pairs.map((pair) => pair.old), "removed"),
		rows("Changed, after", pairs.map((pair) => pair.new), "added"),
	];
}

/** The commits of a turn go together: everything from a person's message to the next one. Commits
 *  that changed earlier messages, marks and notes stand alone. */
function group(commits) {
	const runs = [];
	let isOpen = false; // whether an older commit may join the last run
	for (const commit of commits) {
		const joins = OF_A_TURN.includes(commit.kind);
		if (joins && isOpen) runs.at(-1).push(commit);
		else runs.push([commit]);
		isOpen = joins && commit.speaker !== "user";
	}
	return runs;
}

/** The text of a commit, without who said it. */
function wordsOf({ kind, label, speaker }) {
	return kind === "append" ? label.replace(`${speaker}: `, "") : label;
}

/** "12 messages, 5 calls " */
function describe(run) {
	const messages = run.filter(({ kind }) => kind === "append").length;
	const calls = run.reduce((sum, { calls }) => sum + calls, 0);
	return `${plural(messages, "message")}${calls ? `, ${plural(calls, "call")}` : ""} `;
}
