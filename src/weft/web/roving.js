// Roving focus: a list is one stop of the Tab key, and the arrow keys move within it.
//
// https://www.w3.org/WAI/ARIA/apg/practices/keyboard-interface/#kbd_roving_tabindex

const ALL = "a[href], button, summary, input, [tabindex]";

export class Roving {
	/**
	 * `selector` finds the items in `list`.
	 * `preferred` finds the item that is the stop while the focus is elsewhere. Without one, it is the
	 * item that had the focus last, or else the last item.
	 * `scroller` is for items that are containers, such as messages, and scroll in it: their links
	 * and buttons are stops only in the current item, and an item that is higher than the view is
	 * scrolled before the focus moves on.
	 * `toEdge(isEnd)` draws the first or the last items of a list that is drawn in part.
	 */
	constructor(list, selector, { preferred = null, scroller = null, toEdge = null } = {}) {
		Object.assign(this, { list, selector, preferred, scroller, toEdge, current: null });
		list.addEventListener("focusin", ({ target }) => this.setCurrent(this.itemOf(target)));
		list.addEventListener("keydown", (event) => this.key(event));
		new MutationObserver((records) => this.changed(records)).observe(list, {
			childList: true,
			subtree: true,
			attributeFilter: ["aria-current"],
		});
		this.prepare(list);
		this.check();
	}

	/** The items that are shown, in order. */
	items() {
		return [...this.list.querySelectorAll(this.selector)].filter((item) => item.checkVisibility());
	}

	itemOf(node) {
		const item = node.closest?.(this.selector);
		return item && this.list.contains(item) ? item : null;
	}

	/** Make an item the stop of the Tab key. */
	setCurrent(item) {
		if (!item || item === this.current) return;
		const old = this.current;
		this.current = item;
		if (old) this.prepare(old, true);
		this.prepare(item, true);
	}

	get hasControls() {
		return this.scroller !== null;
	}

	/** Set the stops of a node and, except for items without controls, of the nodes in it. */
	prepare(node, isItem = false) {
		if (isItem) this.set(node);
		if (isItem && !this.hasControls) return;
		if (!isItem && node.matches(this.selector)) this.set(node);
		for (const each of node.querySelectorAll(this.hasControls ? ALL : this.selector)) this.set(each);
	}

	set(node) {
		const item = this.itemOf(node);
		if (!item || (node !== item && !this.hasControls)) return;
		const isStop = item === this.current;
		// A scrollable region must stay a stop, or the keyboard cannot scroll it.
		if (!isStop && node.hasAttribute("data-scrolls")) return;
		node.tabIndex = isStop ? 0 : -1;
	}

	changed(records) {
		for (const { addedNodes } of records) {
			for (const node of addedNodes) if (node instanceof Element) this.prepare(node);
		}
		this.check();
	}

	/** Choose another stop if the current item is gone, or another is preferred. */
	check() {
		const preferred = this.preferred && this.list.querySelector(this.preferred);
		if (preferred?.checkVisibility() && !this.list.contains(document.activeElement)) {
			this.setCurrent(preferred);
		} else if (!this.current?.isConnected || !this.current.checkVisibility()) {
			this.current = null;
			this.setCurrent(this.items().at(-1));
		}
	}

	key(event) {
		const item = this.itemOf(event.target);
		if (!item || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
		if (this.hasControls && event.target !== item) return;
		const move = {
			ArrowDown: () => !this.isCut(item, 1) && this.step(1, item),
			ArrowUp: () => !this.isCut(item, -1) && this.step(-1, item),
			Home: () => this.edge(false),
			End: () => this.edge(true),
		}[event.key];
		if (move?.()) event.preventDefault();
	}

	/** Whether an item goes on below (1) or above (-1) what is in view. */
	isCut(item, side) {
		if (!this.scroller) return false;
		const [box, view] = [item.getBoundingClientRect(), this.scroller.getBoundingClientRect()];
		return side > 0 ? box.bottom > view.bottom + 1 : box.top < view.top - 1;
	}

	/** Focus the first or the last item. */
	edge(isEnd) {
		const focus = () => this.focus(this.items().at(isEnd ? -1 : 0));
		if (!this.toEdge) return focus();
		this.toEdge(isEnd).then(focus);
		return true;
	}

	/** Move the focus by one item; false if there is none. From outside, focus the current item. */
	step(by, from = this.itemOf(document.activeElement)) {
		const items = this.items();
		return this.focus(from ? items[items.indexOf(from) + by] : this.current);
	}

	focus(item) {
		if (!item) return false;
		item.focus({ preventScroll: true });
		item.scrollIntoView({ block: "nearest" });
		return true;
	}
}

/** Make elements that scroll stops of the Tab key, while their content is larger than they are. */
export function watchScrollables(list, selector) {
	const sizes = new ResizeObserver((entries) => {
		for (const { target } of entries) {
			const scrolls =
				target.scrollWidth > target.clientWidth + 1 || target.scrollHeight > target.clientHeight + 1;
			if (scrolls === target.hasAttribute("data-scrolls")) continue;
			target.toggleAttribute("data-scrolls", scrolls);
			if (scrolls) target.tabIndex = 0;
			else target.removeAttribute("tabindex");
		}
	});
	const watch = (node) => {
		if (!(node instanceof Element)) return;
		if (node.matches(selector)) sizes.observe(node);
		for (const each of node.querySelectorAll(selector)) sizes.observe(each);
	};
	watch(list);
	new MutationObserver((records) => {
		for (const { addedNodes } of records) for (const node of addedNodes) watch(node);
	}).observe(list, { childList: true, subtree: true });
}
