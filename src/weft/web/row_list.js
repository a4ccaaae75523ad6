// The list of rows, of which only a window is in the document.
//
// A thread may have many thousand rows. `rows` holds those that were loaded, by position; the rows
// from `start` to `end` are drawn. Two gaps stand for the rest, with heights estimated from the
// rows that are drawn. Scrolling near a gap draws more rows and removes those far away.
//
// Rows are patched by id: a row that has not changed keeps its nodes, and with them open panels,
// selection and focus.

import { el, reconcile } from "./dom.js";

const STEP = 40; // how many rows are added at once
const MOST = 240; // how many rows are drawn at most
const MARGIN = 1200; // pixels beyond the view that should be drawn
const NEAR = 120; // pixels from the bottom within which the view follows the end
const FIRST_GUESS = 90; // the height of a row before any was drawn

export class RowList {
	/** `load(first, count)` reads rows; `makeItem(row, old)` returns an object with `nodes`. */
	constructor({ scroller, list, load, makeItem }) {
		Object.assign(this, { scroller, list, load, makeItem });
		// Rows are between the two marks. A gap is in the document only while it has a height.
		this.head = document.createComment("rows");
		this.foot = document.createComment("/rows");
		this.above = el("li.gap", { "aria-hidden": "true" });
		this.below = el("li.gap", { "aria-hidden": "true" });
		this.generation = 0;
		this.clear();
		scroller.addEventListener("scroll", () => this.ensure(), { passive: true });
	}

	/** Forget everything: another thread is shown. */
	clear() {
		this.generation += 1;
		this.rows = new Map();
		this.items = new Map();
		this.total = this.start = this.end = 0;
		this.aboveHeight = 0;
		this.loading = false;
		this.list.replaceChildren(this.head, this.foot);
		this.setGaps();
	}

	/** Show these rows, which begin at position `first`, and no others. Known rows keep their nodes. */
	show(total, first, rows) {
		this.generation += 1;
		this.loading = false;
		this.rows = new Map(rows.map((row, index) => [first + index, row]));
		this.total = total;
		this.start = first;
		this.end = first + rows.length;
		this.aboveHeight = first * this.average();
		this.draw();
		this.ensureSoon();
	}

	/** The end of the thread has changed: `rows` begin at position `first`, `updated` are earlier
	 *  ones. Returns false if there are rows in between that this list does not know. */
	update(total, first, rows, updated) {
		if (first > this.total && first < total) return false;
		const wasAtEnd = this.end === this.total;
		for (let index = total; index < this.total; index += 1) this.rows.delete(index);
		rows.forEach((row, index) => this.rows.set(first + index, row));
		for (const row of updated) this.replace(row);
		this.total = total;
		if (wasAtEnd || this.end > total) this.end = total;
		this.start = Math.min(this.start, this.end);
		this.draw();
		return true;
	}

	replace(row) {
		for (const [index, known] of this.rows) if (known.id === row.id) this.rows.set(index, row);
	}

	/** Draw the rows of the window. */
	draw() {
		while (this.start < this.end && !this.rows.has(this.start)) this.start += 1;
		const items = new Map();
		const nodes = [];
		for (let index = this.start; index < this.end; index += 1) {
			const row = this.rows.get(index);
			if (!row) {
				this.end = index;
				break;
			}
			const item = this.makeItem(row, this.items.get(row.id), index);
			items.set(row.id, item);
			nodes.push(...item.nodes);
		}
		this.items = items;
		reconcile(this.list, nodes, this.head, this.foot);
		this.setGaps();
	}

	setGaps() {
		if (this.start === 0) this.aboveHeight = 0;
		const below = (this.total - this.end) * this.average();
		this.setGap(this.above, this.aboveHeight, this.head);
		this.setGap(this.below, below, this.foot.nextSibling);
	}

	setGap(gap, height, before) {
		gap.style.height = `${Math.max(0, Math.round(height))}px`;
		if (height <= 0) gap.remove();
		else if (!gap.isConnected) this.list.insertBefore(gap, before);
	}

	/** The mean height of a row. */
	average() {
		const count = this.items.size;
		return count ? Math.max(20, this.drawnHeight() / count) : FIRST_GUESS;
	}

	drawnHeight() {
		let [first, last] = [this.head.nextSibling, this.foot.previousSibling];
		while (first !== this.foot && first.hidden) first = first.nextSibling;
		while (last !== this.head && last.hidden) last = last.previousSibling;
		if (first === this.foot) return 0;
		return last.getBoundingClientRect().bottom - first.getBoundingClientRect().top;
	}

	/** Draw what the view needs; called on every scroll. */
	async ensure() {
		if (this.loading) return;
		const view = this.scroller.getBoundingClientRect();
		const top = this.above.isConnected ? this.above.getBoundingClientRect().bottom : -Infinity;
		const bottom = this.below.isConnected ? this.below.getBoundingClientRect().top : Infinity;
		if (top >= view.bottom || bottom <= view.top) await this.jump(view, top >= view.bottom);
		else if (top > view.top - MARGIN) await this.extendUp();
		else if (bottom < view.bottom + MARGIN) await this.extendDown();
	}

	/** Look again after the next frame: the view may have moved while rows were loaded. */
	ensureSoon() {
		requestAnimationFrame(() => this.ensure());
	}

	/** The view is inside a gap: draw the rows that belong there. */
	async jump(view, isAbove) {
		const gap = isAbove ? this.above : this.below;
		const share = (view.top - gap.getBoundingClientRect().top) / (gap.offsetHeight || 1);
		const [from, count] = isAbove ? [0, this.start] : [this.end, this.total - this.end];
		const index = Math.floor(from + Math.min(1, Math.max(0, share)) * count);
		const start = Math.max(0, index - STEP);
		const end = Math.min(this.total, start + 3 * STEP);
		if (!(await this.fetch(start, end))) return;
		const position = this.scroller.scrollTop;
		this.start = start;
		this.end = end;
		this.aboveHeight = Math.max(0, position - (index - start) * this.average());
		this.draw();
		this.ensureSoon();
	}

	async extendUp() {
		const start = Math.max(0, this.start - STEP);
		if (start === this.start || !(await this.fetch(start, this.start))) return;
		const before = this.drawnHeight();
		this.start = start;
		this.draw();
		// What was added takes the place of the gap, so that nothing in the view moves.
		this.aboveHeight -= this.drawnHeight() - before;
		if (this.start > 0) this.aboveHeight = Math.max(this.aboveHeight, FIRST_GUESS);
		if (this.end - this.start > MOST) this.end = this.start + MOST;
		this.draw();
		this.ensure();
	}

	async extendDown() {
		const end = Math.min(this.total, this.end + STEP);
		if (end === this.end || !(await this.fetch(this.end, end))) return;
		this.end = end;
		this.draw();
		if (this.end - this.start > MOST) {
			const before = this.drawnHeight();
			this.start = this.end - MOST;
			this.draw();
			this.aboveHeight += before - this.drawnHeight();
			this.setGaps();
		}
		this.ensure();
	}

	/** Load rows that are not known yet; false if another list is shown by then. */
	async fetch(start, end) {
		let first = start;
		while (first < end && this.rows.has(first)) first += 1;
		if (first === end) return true;
		const { generation } = this;
		this.loading = true;
		try {
			const loaded = await this.load(first, end - first);
			if (generation !== this.generation) return false;
			loaded.rows.forEach((row, index) => this.rows.set(loaded.first + index, row));
			return true;
		} catch {
			return false; // the next scroll tries again
		} finally {
			if (generation === this.generation) this.loading = false;
		}
	}

	/** Remove everything behind the rows. */
	clearTail() {
		reconcile(this.list, this.below.isConnected ? [this.below] : [], this.foot);
	}

	/** Whether anything is behind the rows. */
	get hasTail() {
		const next = this.foot.nextSibling;
		return Boolean(next === this.below ? next.nextSibling : next);
	}

	/** The node of a row, if it is drawn. */
	find(id) {
		return this.list.querySelector(`:scope > [data-id="${CSS.escape(id)}"]`);
	}

	/** The position of a row that was loaded; -1 if it was not. */
	position(id) {
		for (const [index, row] of this.rows) if (row.id === id) return index;
		return -1;
	}

	atEnd() {
		const { scrollHeight, scrollTop, clientHeight } = this.scroller;
		return this.end === this.total && scrollHeight - scrollTop - clientHeight < NEAR;
	}

	async toStart() {
		const end = Math.min(this.total, STEP);
		if (this.start > 0 && !(await this.fetch(0, end))) return;
		if (this.start > 0) Object.assign(this, { start: 0, end });
		this.draw();
		this.scroller.scrollTop = 0;
	}

	async toEnd() {
		if (this.end < this.total) {
			const start = Math.max(0, this.total - STEP);
			if (!(await this.fetch(start, this.total))) return;
			this.aboveHeight += (start - this.start) * this.average();
			this.start = start;
			this.end = this.total;
			this.draw();
		}
		this.scroller.scrollTop = this.scroller.scrollHeight;
	}
}
