// The compaction dialog: of the whole thread or of a chosen range, with an extract, a model's
// summary or the reader's own. It shows what would change before anything does. While a model
// writes, the conversation shows how far it is (`cards.js`).

import { button, byId, count, el, plural, refill } from "./dom.js";
import { post } from "./api.js";
import { reworded, rows } from "./history.js";
import { state } from "./state.js";
import { say } from "./toast.js";

const WHOLE = "Older turns become a summary. Pinned messages and the latest turns stay as they are, and you can take it back at any time.";

export class Compaction {
	/** `page`: {thread, branch, change}; `position(id)` is where a row is; `mark(id)` highlights a row; `refresh()` and `done()` follow a compaction. */
	constructor({ page, position, mark, refresh, done }) {
		Object.assign(this, { page, position, mark, refresh, done, range: {}, start: null });
		byId("compact").addEventListener("click", () => this.open({}));
		byId("compact-again").addEventListener("click", () => this.preview());
		byId("compact-commit").addEventListener("click", () => this.commit());
		byId("compact-by").addEventListener("change", () => this.show());
		for (const id of ["compact-model", "compact-text", "budget"])
			byId(id).addEventListener("change", () => this.preview());
	}

	/** The entries of a row's menu. */
	items(row) {
		const start = this.start === row.id ? null : row.id;
		return [
			{ label: "Compact from here …", run: () => this.open({ first: row }) },
			{ label: this.start ? "Compact the range up to here …" : "Compact up to here …", run: () => this.openTo(row) },
			{ label: start ? "Start a range here" : "Forget the start of the range", run: () => this.setStart(start) },
		];
	}

	/** Remember the first message of a range. */
	setStart(id) {
		this.start = id;
		this.mark(id);
		if (id) say("The range starts here. Choose “Compact the range up to here” at its last message.");
	}

	openTo(row) {
		if (!this.start) return this.open({ last: row });
		const first = { id: this.start };
		const isReversed = this.position(this.start) > this.position(row.id);
		return this.open(isReversed ? { first: row, last: first } : { first, last: row });
	}

	open({ first = null, last = null }) {
		this.range = { first: first?.id ?? null, last: last?.id ?? null };
		const isRange = Boolean(first || last);
		byId("compact-title").textContent = isRange ? "⚡ Compact a range" : "⚡ Compact this thread";
		byId("compact-what").textContent = isRange
			? "The messages of the range become a summary in their place. Pinned messages stay, and a call stays with its result."
			: WHOLE;
		byId("compact-budget").hidden = isRange;
		byId("budget").value = "";
		byId("compact-model").value ||= state.model.trim();
		this.show();
	}

	/** Show the fields of the chosen kind of summary, and the preview. */
	show() {
		const by = byId("compact-by").value;
		byId("compact-model").hidden = by !== "model";
		byId("compact-text-line").hidden = by !== "text";
		this.preview();
	}

	options() {
		const by = byId("compact-by").value;
		const isRange = Boolean(this.range.first || this.range.last);
		const budget = Number.parseInt(byId("budget").value, 10);
		const { thread, branch } = this.page;
		return {
			thread,
			branch,
			...this.range,
			budget: isRange || Number.isNaN(budget) ? null : budget,
			model: by === "model" ? byId("compact-model").value.trim() : null,
			summary: by === "text" ? byId("compact-text").value.trim() : null,
			by,
		};
	}

	async preview() {
		const dialog = byId("compact-dialog");
		const { by, ...options } = this.options();
		this.previews = (this.previews ?? 0) + 1;
		const number = this.previews;
		byId("compact-commit").disabled = true;
		if (!dialog.open) dialog.showModal();
		const missing = (by === "model" && !options.model && "Choose a model.") || (by === "text" && !options.summary && "Write the summary.");
		if (missing) {
			refill(byId("preview"), el("p.muted", missing));
			return;
		}
		refill(byId("preview"), el("p.muted", "Preparing the preview …"));
		try {
			const plan = await post("/api/compact", { ...options, preview: true });
			if (number === this.previews) this.showPlan(plan, by);
		} catch (error) {
			if (number === this.previews) this.showProblem(error);
		}
	}

	/** Why it cannot be done; with a budget that is too small, the smallest one that works. */
	showProblem({ message, needed }) {
		const use = () => {
			byId("budget").value = needed;
			this.preview();
		};
		const offer = needed ? button(`Fit into ${count(needed)} tokens`, use, { class: null, id: "budget-needed" }) : null;
		refill(byId("preview"), el("p.error", message), offer);
	}

	showPlan(plan, by) {
		const isModel = by === "model";
		const half = Math.floor(plan.before / 2);
		const isMore = !byId("budget").value && plan.budget > half && by === "extract";
		byId("budget").placeholder = plan.budget ? count(plan.budget) : "half of now";
		refill(
			byId("preview"),
			isMore ? el("p.muted", `It cannot become half as long: what must stay and a summary need ${count(plan.budget)} tokens.`) : null,
			el("p.big", `${count(plan.before)} → ${isModel ? "about " : ""}${count(plan.after)} tokens`),
			el("p.inout", describeChange(plan)),
			isModel && plan.requests
				? el("p.muted", `The model is asked ${plan.requests === 1 ? "once" : `${count(plan.requests)} times`}. It may take a while; you can go on reading.`)
				: null,
			rows("Removed", plan.removed, "removed"),
			isModel ? null : rows("Added", plan.added, "added"),
			rows("Kept by pins", plan.pins, "pins"),
			...reworded(plan.reworded),
			everyMessage(plan.changes ?? []),
		);
		byId("compact-commit").disabled = !plan.removed.length;
		if (!plan.removed.length)
			byId("preview").append(el("p", "Nothing would be removed: the thread already fits."));
	}

	async commit() {
		byId("compact-dialog").close();
		const { by, ...options } = this.options();
		this.setStart(null);
		state.compacting = true;
		const result = await this.page.change("/api/compact", options);
		state.compacting = false;
		if (by === "model") await this.refresh();
		if (!result) return;
		byId("compact-text").value = "";
		this.done();
	}
}

/** What happens to each message, and why. */
function everyMessage(changes) {
	const line = ({ action, role, reason, preview }) =>
		el("li", { class: action }, el("b", action), ` ${role}: ${preview} — ${reason}`);
	return el(
		"details.every-message",
		el("summary", `Every message (${changes.length})`),
		el("ul", ...changes.map(line)),
	);
}

/** What a compaction does, in one sentence. */
function describeChange({ removed, added, pins }) {
	const tokens = (list) => plural(
		list.reduce((sum, row) => sum + row.tokens, 0),
		"token",
	);
	const out = `Removes ${plural(removed.length, "message")} (${tokens(removed)})`;
	const put = added.length
		? `adds ${plural(added.length, "summary", "summaries")} (${tokens(added)})`
		: "adds nothing";
	const pinned = pins.length ? ` Keeps ${plural(pins.length, "pinned message")}.` : "";
	return `${out}, ${put}.${pinned}`;
}
