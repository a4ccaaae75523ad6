// Text that grows while it is read.
//
// Text is collected and written once per animation frame, however many pieces arrive. It is added
// to the end of a text node, so that a selection in it survives.

import { el, trusted } from "./dom.js";
import { post } from "./api.js";
import { thinkingPanel } from "./row_item.js";

class Growing {
	constructor() {
		this.tail = document.createTextNode("");
		this.text = "";
		this.pending = "";
	}

	add(text) {
		this.text += text;
		this.pending += text;
	}

	/** Write what was added since the last call. */
	flush() {
		if (!this.pending) return;
		this.tail.appendData(this.pending);
		this.pending = "";
	}
}

export class StreamedThinking extends Growing {
	constructor(key) {
		super();
		this.node = thinkingPanel(this.tail, key);
	}
}

/** Text of which the server sends the HTML now and then: `setHtml(html, length)`. */
export class RenderedText extends Growing {
	constructor() {
		super();
		this.html = el("div.prose");
		this.rendering = null;
		this.node = el("div.streamed", this.html, el("span.tail", this.tail));
	}

	setHtml(html, length) {
		this.rendering = { html, length };
	}

	flush() {
		if (this.rendering && !isSelected(this.node)) {
			trusted(this.html, this.rendering.html);
			this.tail.data = this.text.slice(this.rendering.length);
			this.rendering = null;
			this.pending = "";
		} else super.flush();
	}
}

/** Text that is rendered paragraph by paragraph: each is sent to the server once, when it ends. */
export class StreamedText extends Growing {
	constructor() {
		super();
		this.paragraphs = el("div.paragraphs");
		this.done = 0;
		this.isRendering = false;
		const tail = el("span.tail", this.tail);
		this.node = el("div.streamed", this.paragraphs, tail);
	}

	flush() {
		super.flush();
		this.render();
	}

	async render() {
		const end = lastParagraphEnd(this.text, this.done);
		if (end <= this.done || this.isRendering) return;
		this.isRendering = true;
		const text = this.text.slice(this.done, end);
		try {
			const { html } = await post("/api/render", { text });
			this.paragraphs.append(trusted(el("div.prose"), html));
			this.tail.deleteData(0, text.length);
			this.done = end;
		} catch {
			// The text stays as it is.
		} finally {
			this.isRendering = false;
		}
	}
}

/** Where the last whole paragraph ends; a code block is not cut. */
function lastParagraphEnd(text, start) {
	let end = text.lastIndexOf("\n\n");
	while (end > start) {
		const fences = text.slice(start, end).match(/^ *(```|~~~)/gm)?.length ?? 0;
		if (fences % 2 === 0) return text.slice(start, end).trim() ? end + 2 : start;
		end = text.lastIndexOf("\n\n", end - 1);
	}
	return start;
}

function isSelected(node) {
	const selection = document.getSelection();
	return Boolean(selection) && !selection.isCollapsed && node.contains(selection.anchorNode);
}
