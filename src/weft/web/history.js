// The log: every commit of the branch, newest first. A commit that changed earlier messages (a
// compaction, an edit, a merge, a revert) opens to what it removed, added, and kept because of pins,
// and can be reverted.

import { button, byId, clock, count, el, keepOpen, plural, reconcile, refill, trusted } from "./dom.js";
import { get } from "./api.js";

const SIGNS = { compact: "⚡", merge: "⋈", revert: "↺", edit: "✎", annotate: "✦", append: "•" };
const LONGEST_RUN = 3; // more appended messages in a row are shown as one line

export class History {
	/** `actions`: {revert, jump, branchFrom}. */
	constructor({ actions }) {
		this.actions = actions;
		this.list = byId("log");
		this.entries = new Map();
	}

	show(thread, branch, commits) {
		const isOther = thread !== this.thread || branch !== this.branch;
		Object.assign(this, { thread, branch });
		const old = isOther ? new Map() : this.entries;
		this.entries = new Map();
		const nodes = group(commits).map((run) => this.place(run, old));
		if (!nodes.length) nodes.push(el("li.empty.small", "No commits yet."));
		reconcile(this.list, nodes);
	}

	/** The entry of a run of commits; the old one, if nothing in it has changed. */
	place(run, old) {
		const key = run.at(-1).id; // a run grows at its newer end
		const json = JSON.stringify(run);
		const known = old.get(key);
		if (known?.json === json) {
			this.entries.set(key, known);
			return known.node;
		}
		const node = this.entry(run);
		if (known) keepOpen(known.node, node);
		this.entries.set(key, { json, node });
		return node;
	}

	entry(run) {
		if (run.length > LONGEST_RUN) {
			const range = el("code", `${run.at(-1).id.slice(0, 7)}…${run[0].id.slice(0, 7)}`);
			return el(
				"li.commit.run",
				el(
					"details",
					{ "data-key": "run" },
					el("summary", el("span.sign", "•"), `${plural(run.length, "message")} `, range),
					el("ul", ...run.map((commit) => this.commit(commit))),
				),
			);
		}
		return run.length === 1
			? this.commit(run[0])
			: el("li.commit.run", el("ul", ...run.map((commit) => this.commit(commit))));
	}

	commit(commit) {
		const sign = el("span.sign", { "aria-hidden": "true" }, SIGNS[commit.kind] ?? "•");
		const text = commit.compaction ? "Compacted" : commit.label || commit.kind;
		const label = el("span.label", { title: text }, text);
		const meta = el("span.meta", el("code", commit.id.slice(0, 7)), ` ${clock(commit.created)}`);
		if (!commit.rewrites) {
			return el("li", { class: `commit ${commit.kind}`, "data-commit": commit.id }, sign, label, meta);
		}
		const inside = el("div.change", el("p.muted", "Reading …"));
		const saved = commit.compaction
			? el(
					"span.saved",
					`${count(commit.compaction.before)} → ${count(commit.compaction.after)} tokens`,
				)
			: null;
		const details = el(
			"details",
			{ "data-change": commit.id, "data-key": commit.id },
			el("summary", sign, label, saved, meta),
			inside,
		);
		details.addEventListener("toggle", () => details.open && this.fill(inside, commit));
		return el("li", { class: `commit ${commit.kind}`, "data-commit": commit.id }, details);
	}

	async fill(inside, commit) {
		try {
			const { thread, branch } = this;
			const change = await get("/api/commit", { thread, branch, id: commit.id });
			refill(inside, ...this.change(change, commit));
		} catch (error) {
			refill(inside, el("p.error", error.message));
		}
	}

	change(change, commit) {
		const revert = button("Revert this", () => this.actions.revert(commit.id), { class: null });
		return [
			rows("Removed", change.removed, "removed"),
			rows("Added", change.added, "added"),
			rows("Kept by pins", change.pins, "pins"),
			...reworded(change.reworded),
			el(
				"p.muted",
				`${count(change.before)} → ${count(change.after)} tokens. Later messages stay when you revert it.`,
			),
			revert,
		];
	}

	/** Open the entry of a commit and bring it into view. */
	open(id) {
		const details = this.list.querySelector(`[data-change="${CSS.escape(id)}"]`);
		if (!details) return;
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

/** Runs of plain appended messages go together; every other commit stands alone. */
function group(commits) {
	const runs = [];
	for (const commit of commits) {
		const last = runs.at(-1);
		if (commit.kind === "append" && last?.[0].kind === "append") last.push(commit);
		else runs.push([commit]);
	}
	return runs;
}
