// The conversation: the rows of the thread, failed attempts, reports of runs, and at its end what
// streams now. `row_list.js` draws a window of the rows, `row_item.js` one row.

import { button, byId, count, el, plural } from "./dom.js";
import { COMPACTED, finishedCards } from "./cards.js";
import { RowItem, makePart } from "./row_item.js";
import { RowList } from "./row_list.js";
import { state } from "./state.js";

const STOPPED = "stopped"; // the reason of an attempt that a person stopped
const CLIENT_LEFT = 499; // the status of an attempt whose client closed the connection

export class Chat {
	/**
	 * `actions`: {pin, skip, restore, permalink} for a row, {openCommit} for a commit, {retry}.
	 * `load(first, count)` reads rows; `address()` names the thread and branch.
	 */
	constructor({ table, actions, load, address }) {
		this.table = table;
		this.actions = actions;
		this.address = address;
		this.list = byId("conversation");
		this.facts = { attempts: [], remarks: [] };
		this.versions = {};
		const makeItem = (row, old, index) => this.item(row, old, index);
		this.rows = new RowList({ scroller: byId("scroll"), list: this.list, load, makeItem });
		this.followEnd();
	}

	/** Keep the end in view, if the reader is there: while an answer is written, when an image has
	 *  loaded, and when the view gets smaller. A panel that the reader opens does not move. */
	followEnd() {
		const scroller = byId("scroll");
		this.isFollowing = true;
		let last = 0;
		const track = () => {
			// What grows below the reader is no reason to stop: only scrolling up is.
			if (this.atEnd()) this.isFollowing = true;
			else if (scroller.scrollTop < last) this.isFollowing = false;
			last = scroller.scrollTop;
		};
		const follow = () => {
			if (this.isFollowing) scroller.scrollTop = scroller.scrollHeight;
		};
		const isGrowing = () => state.run !== null || document.body.classList.contains("watching");
		scroller.addEventListener("scroll", track, { passive: true });
		new ResizeObserver(() => isGrowing() && follow()).observe(this.list);
		new ResizeObserver(follow).observe(scroller);
		this.list.addEventListener("load", follow, { capture: true });
	}

	clear() {
		this.rows.clear();
		this.setup = null;
	}

	/** Show which rows have other versions on other branches: {row: [{branch, row, current}]}. */
	setVersions(versions) {
		const isSame = JSON.stringify(versions) === JSON.stringify(this.versions);
		this.versions = versions;
		if (!isSame) this.rows.draw();
	}

	/** Show another thread, or a thread whose rows are all different. */
	show(view) {
		this.facts = view;
		this.rows.show(view.total, view.first, view.rows);
		this.rows.loading = view.part; // positions are not known yet
		this.clearTail();
		this.showSetup(view.setup);
		this.showEmpty();
	}

	/** Show what has changed; false if the whole thread has to be read. `clear` removes what streamed
	 *  before; panels that were opened in it stay open. */
	update(view, clear) {
		const lastRow = this.lastId();
		const open = this.openPanels();
		this.facts = view;
		if (!this.rows.update(view.total, view.first, view.rows, view.updated)) return false;
		clear();
		this.showSetup(view.setup);
		this.showEmpty();
		this.openAgain(open, lastRow);
		return true;
	}

	/** Show a thread whose earlier rows have changed; rows that stay keep their nodes. */
	replace(view) {
		this.facts = view;
		this.rows.show(view.total, view.first, view.rows);
		this.showSetup(view.setup);
		this.showEmpty();
	}

	/** The first row in the view, and where it is. */
	anchor() {
		const { top } = byId("scroll").getBoundingClientRect();
		for (const node of this.list.querySelectorAll(":scope > [data-id]:not([hidden])")) {
			const box = node.getBoundingClientRect();
			if (box.bottom > top) return { id: node.dataset.id, top: box.top };
		}
		return null;
	}

	/** Bring the row of an anchor back to its place; false if it is not there. */
	restore(anchor) {
		const node = anchor && this.rows.find(anchor.id);
		if (!node) return false;
		byId("scroll").scrollTop += node.getBoundingClientRect().top - anchor.top;
		return true;
	}

	showEmpty() {
		this.hideEmpty();
		if (!this.rows.total && !this.rows.hasTail) this.append(emptyThread());
	}

	lastId() {
		return this.rows.rows.get(this.rows.total - 1)?.id;
	}

	/** The keys of panels that are open in what streams. */
	openPanels() {
		const panels = this.list.querySelectorAll("li:not([data-id]) details");
		return [...panels].filter(({ open }) => open).map(({ dataset }) => dataset.key);
	}

	openAgain(keys, lastRow) {
		if (!keys.length) return;
		const start = lastRow ? this.rows.find(lastRow) : null;
		for (const panel of this.list.querySelectorAll("[data-id] details")) {
			const isNew = !start || start.compareDocumentPosition(panel) & Node.DOCUMENT_POSITION_FOLLOWING;
			if (isNew && keys.includes(panel.dataset.key)) panel.open = true;
		}
	}

	/** Add a node behind the rows. */
	append(node) {
		this.list.append(node);
	}

	/** Remove everything behind the rows. */
	clearTail() {
		this.rows.clearTail();
	}

	hideEmpty() {
		this.list.querySelector(".empty")?.remove();
	}

	/** The tools that models are sent, in one line that opens. */
	showSetup(setup) {
		const json = JSON.stringify(setup);
		if (json === this.setupJson && this.setup?.isConnected) return;
		this.setupJson = json;
		this.setup?.remove();
		if (!setup) return;
		const lines = setup.tools.map(({ name, description }) =>
			el("li", el("code", name), ` ${description}`),
		);
		const size = `${plural(setup.tools.length, "tool")}, ${count(setup.characters)} characters`;
		const panel = el("details", { "data-key": "setup" }, el("summary", size), el("ul", ...lines));
		this.setup = el("li.setup", panel);
		this.list.prepend(this.setup);
	}

	item(row, old, index) {
		const item = old ?? new RowItem({ actions: this.actions, address: this.address });
		const { attempts, remarks, unanswered, running } = this.facts;
		const extras = {
			fold: row.fold,
			attempts: attempts.filter(({ after }) => after === row.id),
			remarks: remarks.filter(({ after }) => after === row.id),
			isOpen: unanswered && index === this.rows.total - 1,
			running,
		};
		const versions = this.versions[row.id];
		item.update(versions ? { ...row, versions } : row, JSON.stringify(extras), () => ({
			before: this.compaction(extras.fold),
			after: this.afterRow(extras),
		}));
		return item;
	}

	/** The card of the compaction that added a row; shown above it. */
	compaction(fold) {
		if (!fold) return [];
		const compact_metadata = { pre_tokens: fold.before, post_tokens: fold.after };
		const event = { type: "system", subtype: COMPACTED, compact_metadata };
		return finishedCards(this.table, [event]).map(({ node }) => node);
	}

	/** What is shown after a row: attempts to answer it, and reports of runs. */
	afterRow({ attempts, remarks, isOpen, running }) {
		const nodes = attempts.map((attempt, index) =>
			isOpen && index === attempts.length - 1
				? this.lastAttempt(attempt, !running)
				: this.oldAttempt(attempt),
		);
		if (isOpen && !attempts.length && !running) nodes.push(this.unanswered());
		return [...nodes, ...remarks.flatMap(({ events }) => this.reports(events))];
	}

	/** What a finished run reported. A compaction has its own card among the rows; this one links
	 *  to it. */
	reports(events) {
		return finishedCards(this.table, events).map(({ node }) => {
			if (node.dataset.subtype === COMPACTED) {
				node.dataset.subtype = "compaction_remark";
				node.append(button("Show where", () => this.toCompaction()));
			}
			return node;
		});
	}

	/** The newest attempt at an unanswered message: the part that arrived, the reason, and Retry. */
	lastAttempt(attempt, mayRetry) {
		const reason = el("div.prose", describe(attempt));
		const icon = el("span.icon", { "aria-hidden": "true" }, "✗");
		const retry = mayRetry ? button("Retry", this.actions.retry, { class: null }) : null;
		const tone = isStopped(attempt) ? "grey" : "red";
		const box = el(
			"div",
			{ class: `system-message ${tone}`, role: "alert" },
			tone === "red" ? icon : null,
			reason,
			retry,
		);
		return el("li", { class: `attempt ${attempt.state}` }, ...this.partial(attempt), box);
	}

	/** An earlier attempt: one line that opens. */
	oldAttempt(attempt) {
		const line = el("summary", describe(attempt));
		return el(
			"li",
			{ class: `attempt old ${attempt.state}` },
			el("details", { "data-key": `attempt:${attempt.created}` }, line, ...this.partial(attempt)),
		);
	}

	/** The part of an answer that arrived. */
	partial(attempt) {
		if (!attempt.parts.length) return [];
		const name = el("span.name", "Assistant");
		const badge = el("span.badge", "not finished");
		const parts = attempt.parts.map((part, index) =>
			makePart(part, `${attempt.created}:${index}`, this.address),
		);
		return [el("header.who", name, badge), el("div.body", ...parts)];
	}

	unanswered() {
		return el(
			"li.attempt.none",
			el(
				"div.system-message.grey",
				el("div.prose", "No answer yet."),
				button("Ask now", this.actions.retry, { class: null }),
			),
		);
	}

	fail(message) {
		const icon = el("span.icon", { "aria-hidden": "true" }, "✗");
		this.append(
			el(
				"li.system-message.red",
				icon,
				el("div.prose", { role: "alert" }, message),
			),
		);
		this.toEnd();
	}

	/** Mark the first row of a range; null: no mark. */
	markRange(id) {
		this.list.querySelector(".range-start")?.classList.remove("range-start");
		if (id) this.rows.find(id)?.classList.add("range-start");
	}

	atEnd() {
		return this.rows.atEnd();
	}

	toEnd() {
		this.isFollowing = true;
		return this.rows.toEnd();
	}

	/** Bring a row into view, and focus it. */
	reveal(id) {
		const node = this.rows.find(id);
		if (!node) return false;
		this.isFollowing = false;
		node.scrollIntoView({ block: "center" });
		node.focus({ preventScroll: true });
		return true;
	}

	/** Bring the newest compaction into view. */
	toCompaction() {
		const cards = this.list.querySelectorAll(`[data-subtype="${COMPACTED}"]`);
		if (cards.length) cards[cards.length - 1].scrollIntoView({ block: "center" });
		else if (this.facts.summary) this.actions.openRow(this.facts.summary);
	}
}

/** Whether a person stopped the answer, here or in the client that asked for it. */
function isStopped({ reason, status }) {
	return reason === STOPPED || status === CLIENT_LEFT;
}

/** Why there is no answer, in one sentence. */
function describe({ reason, status, state, model }) {
	const isPartial = state === "partial";
	const wasStopped = isStopped({ reason, status });
	if (wasStopped && isPartial)
		return "Stopped. This part of the answer is kept here, but it is not sent to models.";
	if (wasStopped) return "Stopped before an answer came.";
	const what = isPartial ? "The answer broke off" : `${model ?? "The model"} did not answer`;
	return `${what}: ${reason ?? "no reason was recorded"}${status ? ` (${status})` : ""}`;
}

function emptyThread() {
	return el(
		"li.empty",
		el("h2", "No messages yet"),
		el(
			"p",
			"Write below. Every message becomes a commit that you can search, compact and undo.",
		),
	);
}
