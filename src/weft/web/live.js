// A run of the page as it streams: text, thinking, tool panels, and what the system reports.
//
// Everything here is drawn after the rows, and is removed when the thread is read again. Lasting
// content is in the store, or comes with the thread as a remark.

import { button, count, el, trusted } from "./dom.js";
import { mediaNode } from "./attachments.js";
import { RETRY, StatusCard, isCompaction } from "./cards.js";
import { skipNote } from "./system.js";
import { RenderedText, StreamedThinking } from "./streamed.js";
import { Questions } from "./questions.js";
import { ToolPanel } from "./tool_panel.js";

export class Live {
	/** `confirm(yes)` answers a run that asks whether to compact, `answer(id, value)` any other
	 *  question. */
	constructor({ chat, table, confirm, answer }) {
		this.chat = chat;
		this.table = table;
		this.confirm = confirm;
		this.questions = new Questions({ append: (node) => this.addCard(node), answer });
		this.reset();
	}

	/** Forget what was streamed: the rows are read again. */
	reset() {
		this.blocks = new Map();
		this.panels = new Map();
		this.texts = [];
		this.answer = null;
		this.compaction = null;
		this.retries = null;
		this.question = null;
		this.questions.reset();
	}

	/** Show one frame of a run; returns false for other frames. `flush` writes the text. */
	receive(frame) {
		const handler = {
			user_message: () => this.addQuestion(frame),
			text_delta: () => this.block(frame.id, "text").add(frame.text),
			thinking_delta: () => this.block(frame.id, "thinking").add(frame.text),
			rendered: () => this.blocks.get(frame.id)?.setHtml?.(frame.html, frame.length),
			tool_start: () => this.callTool(frame),
			tool_end: () => this.panels.get(frame.id)?.finish(frame.content, frame.is_error),
			system: () => this.report(frame),
			compaction_question: () => this.ask(frame),
			compaction_answer: () => this.closeQuestion(frame.compact),
		}[frame.type];
		if (!handler) return this.questions.receive(frame);
		handler();
		return true;
	}

	/** Write the text that has arrived. */
	flush() {
		for (const block of this.blocks.values()) block.flush();
	}

	addQuestion(frame) {
		this.chat.hideEmpty();
		const media = (frame.media ?? []).map((part) => mediaNode(part, {}));
		const prose = trusted(el("div.prose"), frame.html);
		const body = el("div.body", prose, ...media);
		this.chat.append(el("li.row.user", speaker("You"), body));
		this.answer = null;
	}

	callTool({ id, name, input }) {
		this.closeBlocks(); // the next answer may reuse their ids
		const panel = new ToolPanel({ id, name, input, running: true }, () => ({}));
		this.panels.set(id, panel);
		this.body().append(panel.node);
	}

	closeBlocks() {
		this.flush();
		for (const block of this.blocks.values()) if (block.html) this.texts.push(block.text);
		this.blocks.clear();
	}

	/** The body of the answer that is being written. */
	body() {
		this.retries?.endRetries(); // the model answers now
		this.retries = null;
		if (!this.answer?.isConnected) {
			this.answer = el("div.body");
			const row = el("li.row.assistant.streaming", speaker("Assistant"), this.answer);
			this.chat.append(row);
		}
		return this.answer;
	}

	/** What follows goes into a new row. */
	closeAnswer() {
		this.answer?.closest(".streaming")?.classList.remove("streaming");
		this.answer = null;
	}

	block(id, kind) {
		let block = this.blocks.get(id);
		if (!block) {
			const index = this.body().childNodes.length;
			block = kind === "text" ? new RenderedText() : new StreamedThinking(`thinking:${index}`);
			this.blocks.set(id, block);
			this.body().append(block.node);
		}
		return block;
	}

	/** Show a system event, or log why not; the events of one compaction share a card. */
	report(event) {
		if (event.subtype === RETRY) return this.reportRetry(event);
		const running = this.compaction?.isRunning && this.compaction.node.isConnected;
		const joins = running && isCompaction(event);
		const card = joins ? this.compaction : new StatusCard(this.table);
		if (!card.take(event)) {
			console.log(skipNote(event?.subtype));
			return;
		}
		if (!joins) this.chat.append(card.node);
		if (isCompaction(event)) this.compaction = card;
		this.closeAnswer();
	}

	/** A request failed and is sent again: one card for all retries of a request. */
	reportRetry(event) {
		const isNew = !this.retries?.node.isConnected;
		const card = isNew ? new StatusCard(this.table) : this.retries;
		if (!card.take(event)) return;
		if (isNew) this.addCard(card.node);
		this.retries = card;
	}

	/** Add a card; what follows goes below it. */
	addCard(node) {
		this.chat.append(node);
		this.closeAnswer();
	}

	/** Show the run's question whether to compact. */
	ask(frame) {
		const choose = (yes) => () => {
			for (const each of buttons) each.disabled = true;
			this.confirm(yes);
		};
		const buttons = [
			button("Compact and go on", choose(true), { class: null }),
			button("Go on without", choose(false)),
		];
		const card = new StatusCard(this.table);
		card.take(questionEvent(frame));
		card.node.classList.add("question");
		card.body.append(el("p.line", ...buttons));
		this.question = card.body;
		this.addCard(card.node);
	}

	/** Remove the card of a compaction that has ended: the rows have one. */
	removeFinished() {
		if (!this.compaction || this.compaction.isRunning) return;
		this.compaction.node.remove();
		this.retries?.node.remove();
		this.compaction = this.retries = null;
	}

	closeQuestion(compact) {
		this.question?.querySelector(".line")?.remove();
		const text = compact ? "Answered: compact." : "Answered: go on without.";
		this.question?.append(el("p.muted", text));
		this.question = null;
	}

	/** The run ended: stop all spinners. Returns the text of the answer. */
	finish() {
		for (const panel of this.panels.values()) panel.stop("No result: the run ended first.");
		this.closeBlocks();
		const text = this.texts.join("\n");
		this.closeAnswer();
		this.retries?.endRetries();
		this.compaction?.stop();
		this.question?.querySelector(".line")?.remove();
		this.questions.finish();
		this.texts = [];
		return text;
	}
}

function questionEvent({ model, tokens, window, limit }) {
	const content =
		`**Compact this thread?** It has about ${count(tokens)} tokens by now. The window of ${model} ` +
		`is ${count(window)}, of which ${count(limit)} are for the conversation. Older turns would ` +
		"become a summary; you can revert that later.";
	return { type: "system", subtype: "compaction_question", content };
}

function speaker(name) {
	return el("header.who", el("span.name", name));
}
