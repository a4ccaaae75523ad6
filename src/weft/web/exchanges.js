// Exchanges of other programs that run in this thread: Claude Code, Codex, or any client of the
// gateway. The server pushes their state and the text of their answers.

import { el } from "./dom.js";
import { RETRY } from "./cards.js";
import { displaySystemMessage } from "./system.js";
import { StreamedText, StreamedThinking } from "./streamed.js";
import { ToolPanel } from "./tool_panel.js";

const STATES = {
	waiting: "waiting for the model …",
	thinking: "thinking …",
	streaming: "answering …",
};
const OVER = ["done", "failed"];

export class Exchanges {
	/** `append(node)` adds a row at the end of the conversation. */
	constructor({ append, table }) {
		this.append = append;
		this.table = table;
		this.running = new Map();
	}

	/** Show an event; returns false if it is of another type. */
	receive(event) {
		if (event.type === "exchange") this.setState(event);
		else if (event.type === "block") this.running.get(event.exchange)?.add(event);
		else return false;
		return true;
	}

	knows({ exchange }) {
		return this.running.has(exchange);
	}

	setState(event) {
		const known = this.running.get(event.exchange);
		if (OVER.includes(event.state)) {
			known?.end();
			return;
		}
		const answer = known ?? new Answer(event);
		if (!known) {
			this.running.set(event.exchange, answer);
			this.append(answer.node);
		}
		const retry = event.retry && displaySystemMessage(this.table, { ...event.retry, type: "system", subtype: RETRY });
		answer.setState(event.state, retry?.text);
	}

	/** Write the text that has arrived. */
	flush() {
		for (const answer of this.running.values()) answer.flush();
	}

	get isActive() {
		return [...this.running.values()].some((answer) => !answer.isOver);
	}

	/** Forget the exchanges that are over: their answers are in the thread now. */
	settle() {
		for (const [id, answer] of this.running) {
			if (!answer.isOver) continue;
			answer.node.remove();
			this.running.delete(id);
		}
	}

	/** Forget all exchanges: another thread is shown, or the server sends them again. */
	clear() {
		for (const answer of this.running.values()) answer.node.remove();
		this.running.clear();
	}
}

class Answer {
	constructor({ exchange, model }) {
		this.blocks = new Map();
		this.body = el("div.body");
		this.state = el("span.tokens.live-state", { role: "status" });
		this.node = el(
			"li.row.assistant.streaming.live",
			{ "data-exchange": exchange },
			el(
				"header.who",
				el("span.name", "Assistant"),
				el("span.tokens.model", model),
				this.state,
			),
			this.body,
		);
	}

	/** `retry`: why the request is sent again. */
	setState(state, retry) {
		this.node.dataset.state = state;
		this.state.textContent = retry ?? STATES[state] ?? state;
	}

	add(event) {
		if (event.new && this.blocks.has(event.index)) this.restart();
		const block = this.blocks.get(event.index) ?? this.open(event);
		block?.add(event.text, event.closed);
	}

	/** The request was sent again, so the answer begins anew. */
	restart() {
		this.blocks.clear();
		this.body.replaceChildren();
	}

	open({ index, kind, name, call }) {
		const block = {
			text: () => new StreamedText(),
			thinking: () => new StreamedThinking(`thinking:${index}`),
			call: () => new StreamedCall(name, call),
		}[kind]?.();
		if (!block) return null;
		this.blocks.set(index, block);
		this.body.append(block.node);
		return block;
	}

	flush() {
		for (const block of this.blocks.values()) block.flush();
	}

	end() {
		this.isOver = true;
		this.flush();
		this.node.classList.remove("streaming");
		this.state.textContent = "";
	}
}

/** A tool call whose arguments stream. */
class StreamedCall {
	constructor(name, id) {
		this.text = "";
		this.panel = new ToolPanel({ id, name, input: "", running: true }, () => ({}));
		this.node = this.panel.node;
	}

	add(text, isClosed) {
		this.text += text;
		this.isDirty = true;
		this.isClosed = isClosed;
	}

	flush() {
		if (!this.isDirty) return;
		this.isDirty = false;
		const { id, name } = this.panel.part;
		this.panel.update({ id, name, input: this.isClosed ? parse(this.text) : this.text, running: true });
	}
}

function parse(text) {
	try {
		return JSON.parse(text || "{}");
	} catch {
		return text;
	}
}
