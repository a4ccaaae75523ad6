// The frames that the server pushes. They are handled in order, at most once per animation frame:
// many pieces of text are one change of the document.

import { byId } from "./dom.js";
import { Socket } from "./api.js";
import { state } from "./state.js";
import { say } from "./toast.js";

const HIDDEN_MILLISECONDS = 200; // how often a tab in the background handles its frames
const BEFORE_FIRST = "start"; // the value of `until` for the state before the first commit

export class Frames {
	constructor({ chat, live, exchanges, threads, composer }) {
		Object.assign(this, { chat, live, exchanges, threads, composer });
		this.inbox = [];
		this.draining = null;
	}

	/** Connect; `reader` shows what the frames are about. */
	connect(reader) {
		this.reader = reader;
		const onframe = (frame) => this.receive(frame);
		this.socket = new Socket("/ws", { onframe, onstate: (name) => this.connection(name === "open") });
	}

	/** Send a frame about the open branch; false without a connection. */
	send(frame) {
		const { thread, branch } = state;
		return this.socket.send({ thread, branch, ...frame });
	}

	receive(frame) {
		this.inbox.push(frame);
		this.draining ??= nextFrame().then(() => this.drain());
		return this.draining;
	}

	async drain() {
		while (this.inbox.length) {
			try {
				await this.handle(this.inbox.shift());
			} catch (error) {
				console.error(error);
			}
		}
		this.draining = null;
		this.live.flush();
		this.exchanges.flush();
		document.body.classList.toggle("watching", this.exchanges.isActive);
	}

	handle(frame) {
		if (typeof frame !== "object" || frame === null) return undefined;
		const { composer, exchanges, live, reader, threads } = this;
		if (frame.type === "runs") return threads.mark(frame.runs);
		if (frame.type === "threads") return threads.changed();
		// These answer a text that was sent, even if another thread is open now.
		if (frame.type === "started") composer.began(frame);
		if (frame.type === "queued") return composer.queued(frame);
		if (frame.type === "compaction_required") return composer.ask(frame);
		if (frame.type === "error" && frame.scope === "frame") return this.refused(frame);
		if (state.at && frame.type !== "changed") return undefined; // shown when the reader comes back
		if (frame.thread !== undefined && frame.thread !== state.thread) return undefined;
		if (frame.type === "exchange") return this.setExchange(frame);
		if (frame.type === "changed") return state.run ? undefined : reader.refreshChanged();
		if (frame.branch !== undefined && frame.branch !== state.branch) return undefined;
		if (frame.type === "report") return this.reportCompaction(frame.event);
		if (exchanges.receive(frame) || live.receive(frame)) return undefined;
		const handler = {
			watching: () => this.join(frame),
			started: () => this.began(frame),
			queue: () => (state.queue = frame.queue),
			message_complete: () => this.ended(frame),
			interrupted: () => this.ended(frame),
			error: () => this.ended(frame),
		}[frame.type];
		return handler?.();
	}

	/** Ask for the frames of this thread's runs; the server answers with `watching`. */
	watch() {
		if (state.at) state.ready = true; // an earlier commit never changes
		else if (state.branch) this.send({ type: "watch" });
	}

	/** The answer to `watch`: show the thread as it was before the run, then the run's frames. */
	async join(frame) {
		const wasRunning = state.run !== null;
		const { chat, exchanges, live, reader } = this;
		this.composer.refresh(); // a question may have been lost with the connection
		state.queue = frame.queue ?? [];
		exchanges.clear(); // the server sends them again
		if (!frame.run) {
			state.run = null;
			await reader.refresh({ clear: () => wasRunning && chat.clearTail() });
			state.ready = true;
			return;
		}
		state.run = { id: frame.run, model: frame.model };
		await reader.reload({ until: frame.base ?? BEFORE_FIRST });
		for (const each of frame.frames) live.receive(each);
		live.flush();
		await chat.toEnd();
		state.ready = true;
	}

	async began(frame) {
		state.run = { id: frame.run, model: frame.model };
		if (state.head !== frame.base) await this.reader.refresh({ until: frame.base ?? BEFORE_FIRST });
		await this.chat.toEnd();
	}

	/** The run is over. Its answer, or its attempt with the reason, is in the store now. */
	async ended(frame) {
		const { chat, live, reader } = this;
		const text = live.finish();
		state.run = null;
		byId("live").textContent = frame.type === "interrupted" ? "Stopped." : (frame.message ?? text);
		await reader.refresh({ clear: () => chat.clearTail() });
		live.reset();
		const isShown = document.querySelector("#conversation > .attempt:not(.old)") !== null;
		if (frame.type === "error" && !isShown) chat.fail(frame.message);
		await chat.toEnd();
	}

	/** Another program's exchange in this thread has a new state. */
	async setExchange(frame) {
		const { chat, exchanges, reader } = this;
		const isOver = frame.state === "done" || frame.state === "failed";
		if (!isOver && frame.head !== state.head && !state.run) await reader.refresh();
		if (frame.branch !== state.branch && !exchanges.knows(frame)) return;
		const isAtEnd = chat.atEnd();
		exchanges.receive(frame);
		const isStored = frame.state === "failed" || frame.recorded === "store";
		if (isOver && isStored && !state.run) await reader.refresh({ clear: () => exchanges.settle() });
		if (isAtEnd) await chat.toEnd();
	}

	/** Show how a compaction goes that somebody started in a page. When it has ended, the rows say so:
	 *  the next read removes its card. */
	async reportCompaction(event) {
		const isAtEnd = this.chat.atEnd();
		this.live.receive(event);
		if (isAtEnd) await this.chat.toEnd();
	}

	/** The server refused a frame: the text stays in the box. */
	refused(frame) {
		this.composer.release();
		say(frame.message, true);
	}

	/** Runs go on without a connection. When it is back, `watch` gets what was missed. */
	connection(isOpen) {
		state.connected = isOpen;
		if (isOpen) this.watch(); // its answer makes the page read what it has missed
		else state.ready = false;
	}
}

function nextFrame() {
	return new Promise((resolve) => {
		if (document.hidden) setTimeout(resolve, HIDDEN_MILLISECONDS);
		else requestAnimationFrame(resolve);
	});
}
