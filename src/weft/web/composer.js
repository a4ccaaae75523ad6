// The message box: which model answers, how full its window is, and sending.
//
// A thread keeps its model: the box shows the one that answered last, unless the reader chose
// another for this thread (kept in the browser until it has answered).

import { button, byId, count, el, plural, refill } from "./dom.js";
import { get } from "./api.js";
import { AgentChoice } from "./agents.js";
import { Attachments } from "./attachments.js";
import { openDialog } from "./dialog.js";
import { rows } from "./history.js";

const OFFLINE = "weft-offline";
const CHOICE = "weft.model:"; // + the thread's name: the model chosen for it
const LAST = "weft.model"; // the model used last, for threads that have none yet

export class Composer {
	/** `send(frame)` returns false without a connection; `say(text, isError)` shows one line. */
	constructor({ send, say }) {
		this.sendFrame = send;
		this.say = say;
		this.input = byId("words");
		this.model = byId("model");
		this.attachments = new Attachments({ say });
		this.agents = new AgentChoice();
		this.pending = null;
		this.question = null;
		this.isRunning = false;
		this.hasUpstreams = false;
		this.isTyped = false; // the reader changed the model's name and has not left the box
		this.asked = this.answered = 0; // a late answer must not replace that of a later question
		this.addListeners();
	}

	addListeners() {
		byId("composer").addEventListener("submit", (event) => this.submit(event));
		this.input.addEventListener("input", () => this.grow());
		this.input.addEventListener("keydown", (event) => {
			if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.submit(event);
		});
		this.model.addEventListener("input", () => (this.isTyped = true));
		this.model.addEventListener("change", () => this.choose());
	}

	/** Load the list of models. The thread's own model may be missing from it. */
	async loadModels() {
		const { models, upstreams, agents } = await get("/api/models").catch(() => ({}));
		this.agents.show(agents);
		refill(byId("models"), ...(models ?? []).map((name) => el("option", { value: name })));
		this.hasUpstreams = (upstreams ?? []).length > 0;
		const failed = (upstreams ?? []).filter(({ error }) => error);
		this.model.title = failed.length
			? failed.map(({ name, error }) => `${name} does not list its models: ${error}`).join("\n")
			: "Model";
		await this.refresh();
	}

	/** Messages go to this thread from now on. `refresh` shows its model. */
	at(thread, branch) {
		const isOther = thread !== this.thread;
		Object.assign(this, { thread, branch });
		if (!isOther) return;
		this.agents.at(thread);
		this.shownThread = null;
		this.isTyped = false;
		this.model.value = this.chosen(thread) ?? "";
	}

	/** Show a thread's model and window. */
	show(view, thread, branch) {
		const isOther = thread !== this.shownThread;
		this.shownThread = thread;
		const chosen = this.chosen(thread);
		if (chosen && chosen === view.model) localStorage.removeItem(CHOICE + thread);
		const own = view.model ? (view.problem ? "" : view.model) : this.fallback();
		const isInside = document.activeElement === this.model && !isOther;
		if (!isInside && !this.isTyped) this.model.value = chosen ?? own;
		this.showProblem(view);
		this.showContext(this.model.value ? view.context : { tokens: view.context.tokens });
	}

	/** The model for a thread that has no answer yet. */
	fallback() {
		return localStorage.getItem(LAST) ?? (this.hasUpstreams ? "" : OFFLINE);
	}

	/** The model that the reader chose for a thread; null if it is the thread's own. */
	chosen(thread) {
		return localStorage.getItem(CHOICE + thread);
	}

	/** A renamed thread keeps the reader's choice. */
	moveChoice(old, name) {
		const chosen = this.chosen(old);
		if (chosen) localStorage.setItem(CHOICE + name, chosen);
		localStorage.removeItem(CHOICE + old);
		this.agents.move(old, name);
	}

	choose() {
		this.isTyped = false;
		const name = this.model.value.trim();
		if (name) localStorage.setItem(CHOICE + this.thread, name);
		else localStorage.removeItem(CHOICE + this.thread);
		this.refresh();
	}

	/** Ask the server again about the model in the box. */
	async refresh() {
		if (!this.thread) return;
		const { thread, branch } = this;
		const query = { thread, branch, model: this.chosen(thread) };
		const key = JSON.stringify(query);
		if (this.asking === key) {
			this.isStale = true; // something may have changed since: ask once more
			return;
		}
		this.asking = key;
		this.isStale = false;
		const question = ++this.asked;
		const state = await get("/api/composer", query).catch(() => null);
		if (this.asking === key) {
			this.asking = null;
			if (this.isStale) this.refresh();
		}
		if (!state || question < this.answered) return;
		if (this.thread !== thread || this.branch !== branch) return;
		this.answered = question;
		this.show(state, thread, branch);
	}

	showProblem({ model, problem }) {
		const context = this.chosen(this.thread) ? "" : `${model} answered last here. `;
		const hint = problem && model ? `${context}Choose another model: ${problem}.` : "";
		byId("model-problem").textContent = hint;
		byId("model-problem").hidden = !hint;
	}

	/** How full the window is, and where compaction starts. */
	showContext({ tokens, window, limit, source }) {
		const share = window ? tokens / window : 0;
		const gauge = byId("gauge");
		gauge.value = Math.min(1, share);
		gauge.classList.toggle("high", Boolean(limit) && tokens > limit);
		byId("gauge-text").textContent = window
			? `${count(tokens)} of ${count(window)} tokens`
			: plural(tokens, "token");
		gauge.title =
			source === "reported"
				? "As the model reported with its last answer, and an estimate of what came after"
				: "An estimate of the messages and tools; the same count decides when compaction starts";
		const mark = byId("gauge-mark");
		mark.hidden = !limit;
		byId("gauge-limit").textContent = limit ? `compacts above ${count(limit)}` : "";
		if (!limit) return;
		mark.style.left = `${(100 * limit) / window}%`;
		mark.title = `Compaction starts at ${count(limit)} tokens`;
	}

	grow() {
		this.input.rows = Math.min(10, Math.max(2, this.input.value.split("\n").length));
	}

	submit(event) {
		event?.preventDefault();
		const text = this.input.value;
		const { ids, isUploading } = this.attachments;
		if (this.pending || this.isWaiting) return;
		if (isUploading) {
			this.say("A file is still being uploaded.", true);
			return;
		}
		if (!text.trim() && !ids.length) return;
		this.start({ type: "say", text: text.trim() ? text : "", ...(ids.length ? { attach: ids } : {}) });
	}

	/** Ask again for an answer to what is already in the thread. */
	retry() {
		if (!this.pending && !this.isRunning) this.start({ type: "retry" });
	}

	start(frame) {
		if (!this.thread) return; // still loading
		const model = this.model.value.trim() || this.runModel; // the thread may have no answer yet
		if (!model && this.shownThread !== this.thread && !this.isWaiting) {
			this.waitForModel(frame);
			return;
		}
		if (!model) {
			this.say("Choose a model first.", true);
			this.model.focus();
			return;
		}
		const place = { thread: this.thread, branch: this.branch };
		this.request({ ...frame, ...place, model, ...this.agents.fields() });
	}

	/** The thread was opened a moment ago, and its model is not known yet. */
	async waitForModel(frame) {
		const { thread } = this;
		this.isWaiting = true; // a second Enter must not send the text twice
		try {
			await this.refresh();
			if (this.thread === thread) this.start(frame);
		} finally {
			this.isWaiting = false;
		}
	}

	request(frame) {
		const request = crypto.randomUUID?.() ?? String(Math.random());
		const pending = { ...frame, request };
		if (!this.sendFrame(pending)) {
			this.say("No connection yet: your text is still in the box.", true);
			return;
		}
		this.pending = pending;
		byId("send").disabled = true;
	}

	/** The server has started the run: the text is in the thread now. */
	began(request) {
		if (!this.pending || this.pending.request !== request) return;
		localStorage.setItem(LAST, this.pending.model);
		if (this.pending.type === "say") this.empty();
		this.release();
	}

	/** The text and its files were taken. */
	empty() {
		this.input.value = "";
		this.attachments.clear();
		this.grow();
	}

	/** A run is going on: the server sends the text when it has ended. */
	queued({ request }) {
		if (!this.pending || this.pending.request !== request) return;
		this.empty();
		this.release();
		this.say("Queued. It is sent when the running answer has ended.");
	}

	/** Show the queued texts. */
	showQueue(texts) {
		const entries = texts.map(({ id, text, hint }) => {
			const send = (type) => () =>
				this.sendFrame({ type, thread: this.thread, branch: this.branch, id });
			const buttons = hint
				? []
				: [
						button("Tell it now", send("hint"), { title: "The running agent gets it before its next step" }),
						button("Cancel", send("unqueue")),
					];
			return el(
				"li",
				el("span.badge", hint ? "for the next step" : "queued"),
				el("span.queued-text", text),
				...buttons,
			);
		});
		refill(byId("queue"), ...entries);
	}

	/** The server refused the frame, or the connection was lost: the text stays in the box. */
	release() {
		this.pending = null;
		byId("send").disabled = false;
	}

	/** A run of this model writes an answer, or none does. */
	running(isRunning, model = null) {
		Object.assign(this, { isRunning, runModel: model });
		byId("send").hidden = isRunning;
		byId("stop").hidden = !isRunning;
	}

	// A run that would compact the thread: the reader decides first.

	ask(question) {
		if (!this.pending || question.request !== this.pending.request) return;
		this.question = this.pending;
		const { model, tokens, window, limit, after, messages, problem } = question;
		const size =
			`With this message the thread has about ${count(tokens)} tokens. ${model} has a window of ` +
			`${count(window)}, of which ${count(limit)} are for the conversation and the rest for the answer.`;
		const change = el("p.big", `${count(tokens)} → about ${count(after)} tokens`);
		const summary = `${plural(messages ?? 0, "message")} would become a summary, written by ${model}.`;
		const label = question.retry ? "Compact and ask" : "Compact and send";
		const compact = { label, id: "ask-compact", run: () => this.answer(true) };
		const without = { label: "Send without compacting", kind: "quiet", id: "ask-without", run: () => this.answer(false) };
		const dialog = openDialog({
			id: "ask-dialog",
			title: "⚡ This would compact the thread",
			body: [
				el("p", size),
				...(problem
					? [el("p.error", `It cannot be compacted enough: ${problem}`)]
					: [change, el("p", summary), rows("Removed", question.removed, "removed", messages)]),
				el("p.muted", "You can revert it later. Another model may have a larger window."),
			],
			buttons: problem ? [without] : [without, compact],
		});
		dialog.node.addEventListener("close", () => this.question && this.cancel());
	}

	answer(compact) {
		const frame = this.question;
		this.question = null; // the dialog's `close` comes later
		this.release();
		if (frame) this.request({ ...frame, compact });
	}

	cancel() {
		this.question = null;
		this.release();
		this.input.focus();
	}
}
