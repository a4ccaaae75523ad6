// The message box: which model answers, the draft of the open thread, and sending.
//
// A thread keeps its model: the box shows the one that answered last, unless the reader chose
// another for this thread (kept in the browser until it has answered).

import { button, byId, count, el, plural, refill } from "./dom.js";
import { get } from "./api.js";
import { AgentChoice } from "./agents.js";
import { Attachments } from "./attachments.js";
import { openDialog } from "./dialog.js";
import { draftOf, forgetDraft, moveDraft, saveDraft } from "./drafts.js";
import { rows } from "./history.js";
import { effect, watch } from "./signals.js";
import { shownPlace, state } from "./state.js";
import { say } from "./toast.js";

const OFFLINE = "weft-offline";
const CHOICE = "weft.model:"; // + the thread's name: the model chosen for it
const LAST = "weft.model"; // the model used last, for threads that have none yet

export class Composer {
	/** `send(frame)` returns false without a connection. */
	constructor({ send }) {
		this.sendFrame = send;
		this.input = byId("words");
		this.model = byId("model");
		this.attachments = new Attachments();
		this.agents = new AgentChoice();
		this.question = null;
		this.hasUpstreams = false;
		this.isTyped = false; // the reader changed the model's name and has not left the box
		this.asked = this.answered = 0; // a late answer must not replace that of a later question
		this.addListeners();
		watch(() => state.thread, () => this.open());
		watch(() => state.updates, () => this.refresh());
		watch(() => state.connected, (isOpen) => !isOpen && this.release());
		effect(() => this.show());
		effect(() => this.showRun());
		effect(() => this.showQueue());
	}

	addListeners() {
		byId("composer").addEventListener("submit", (event) => this.submit(event));
		this.input.addEventListener("input", () => {
			draftOf(state.thread).text = this.input.value;
			saveDraft(state.thread);
			this.grow();
		});
		this.input.addEventListener("keydown", (event) => {
			if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.submit(event);
		});
		this.model.addEventListener("input", () => (this.isTyped = true));
		this.model.addEventListener("change", () => this.choose());
		byId("stop").addEventListener("click", () => this.sendFrame({ type: "interrupt" }));
		addEventListener("storage", ({ key }) => {
			const isOpen = forgetDraft(key) === state.thread; // another tab has changed it
			if (isOpen && document.activeElement !== this.input) this.showDraft();
		});
	}

	/** Load the list of models. The thread's own model may be missing from it. */
	async loadModels() {
		const { models, upstreams, agents } = await get("/api/models").catch(() => ({}));
		if (agents) state.agents = agents;
		refill(byId("models"), ...(models ?? []).map((name) => el("option", { value: name })));
		this.hasUpstreams = (upstreams ?? []).length > 0;
		const failed = (upstreams ?? []).filter(({ error }) => error);
		this.model.title = failed.length
			? failed.map(({ name, error }) => `${name} does not list its models: ${error}`).join("\n")
			: "Model";
		await this.refresh();
	}

	/** Another thread is open: messages go there from now on. */
	open() {
		this.isTyped = false;
		this.shownThread = null;
		state.model = this.model.value = this.chosen() ?? "";
		this.showDraft();
	}

	/** The text and the files that were not sent yet. */
	showDraft() {
		this.input.value = draftOf(state.thread).text;
		this.attachments.show();
		this.grow();
	}

	/** Show the model of the open thread. */
	show() {
		const { composer, thread } = state;
		if (!composer) return;
		const chosen = this.chosen();
		if (chosen && chosen === composer.model) localStorage.removeItem(CHOICE + thread);
		const own = composer.model ? (composer.problem ? "" : composer.model) : this.fallback();
		const isInside = document.activeElement === this.model && this.shownThread === thread;
		if (!isInside && !this.isTyped) this.model.value = chosen ?? own;
		this.shownThread = thread;
		state.model = this.model.value;
		this.showProblem(composer);
	}

	/** The model for a thread that has no answer yet. */
	fallback() {
		return localStorage.getItem(LAST) ?? (this.hasUpstreams ? "" : OFFLINE);
	}

	/** The model that the reader chose for the open thread; null if it is the thread's own. */
	chosen() {
		return localStorage.getItem(CHOICE + state.thread);
	}

	/** A renamed thread keeps what the reader chose and wrote. */
	rename(old, name) {
		const chosen = localStorage.getItem(CHOICE + old);
		if (chosen) localStorage.setItem(CHOICE + name, chosen);
		localStorage.removeItem(CHOICE + old);
		moveDraft(old, name);
	}

	choose() {
		this.isTyped = false;
		const name = this.model.value.trim();
		if (name) localStorage.setItem(CHOICE + state.thread, name);
		else localStorage.removeItem(CHOICE + state.thread);
		this.refresh();
	}

	/** Ask the server again: about the model in the box, and how full its window is. */
	async refresh() {
		if (!state.thread) return;
		const query = { ...shownPlace(), model: this.chosen() };
		const key = JSON.stringify(query);
		if (this.asking === key) {
			this.isStale = true; // something may have changed since: ask once more
			return;
		}
		this.asking = key;
		this.isStale = false;
		const question = ++this.asked;
		const answer = await get("/api/composer", query).catch(() => null);
		if (this.asking === key) {
			this.asking = null;
			if (this.isStale) this.refresh();
		}
		if (!answer || question < this.answered) return;
		if (JSON.stringify({ ...shownPlace(), model: this.chosen() }) !== key) return;
		this.answered = question;
		state.composer = answer;
	}

	showProblem({ model, problem }) {
		const context = this.chosen() ? "" : `${model} answered last here. `;
		const hint = problem && model ? `${context}Choose another model: ${problem}.` : "";
		byId("model-problem").textContent = hint;
		byId("model-problem").hidden = !hint;
	}

	grow() {
		this.input.rows = Math.min(10, Math.max(2, this.input.value.split("\n").length));
	}

	submit(event) {
		event?.preventDefault();
		const text = this.input.value;
		const { ids, isUploading } = this.attachments;
		if (state.sending[state.thread] || this.isWaiting) return;
		if (isUploading) {
			say("A file is still being uploaded.", true);
			return;
		}
		if (!text.trim() && !ids.length) return;
		this.start({ type: "say", text: text.trim() ? text : "", ...(ids.length ? { attach: ids } : {}) });
	}

	/** Ask again for an answer to what is already in the thread. */
	retry() {
		if (!state.sending[state.thread] && !state.run) this.start({ type: "retry" });
	}

	start(frame) {
		if (!state.thread || !state.branch) return; // still loading
		const model = this.model.value.trim() || state.run?.model; // the thread may have no answer yet
		if (!model && !state.composer && !this.isWaiting) {
			this.waitForModel(frame);
			return;
		}
		if (!model) {
			say("Choose a model first.", true);
			this.model.focus();
			return;
		}
		const { thread, branch } = state;
		this.request({ ...frame, thread, branch, model, ...this.agents.fields() });
	}

	/** The thread was opened a moment ago, and its model is not known yet. */
	async waitForModel(frame) {
		const { thread } = state;
		this.isWaiting = true; // a second Enter must not send the text twice
		try {
			await this.refresh();
			if (state.thread === thread) this.start(frame);
		} finally {
			this.isWaiting = false;
		}
	}

	request(frame) {
		const request = crypto.randomUUID?.() ?? String(Math.random());
		const pending = { ...frame, request };
		if (!this.sendFrame(pending)) {
			say("No connection yet: your text is still in the box.", true);
			return;
		}
		state.sending = { ...state.sending, [frame.thread]: pending };
	}

	/** What this tab has sent, and the server speaks about; null if it is of another tab. */
	find({ request }) {
		return Object.values(state.sending).find((each) => each.request === request) ?? null;
	}

	/** The server has taken what this tab sent; returns it. */
	taken(answer) {
		const frame = this.find(answer);
		if (!frame) return null;
		if (frame.type === "say") this.empty(frame);
		this.release(frame.thread);
		return frame;
	}

	/** The server has started the run: the text is in the thread now. */
	began(frame) {
		const sent = this.taken(frame);
		if (sent) localStorage.setItem(LAST, sent.model);
	}

	/** A run is going on: the server sends the text when it has ended. */
	queued(frame) {
		if (this.taken(frame)) say("Queued. It is sent when the running answer has ended.");
	}

	/** The text and its files were taken; what was typed since stays. */
	empty({ thread, text, attach = [] }) {
		const draft = draftOf(thread);
		if (draft.text.startsWith(text)) draft.text = draft.text.slice(text.length).trimStart();
		else if (!text && !draft.text.trim()) draft.text = "";
		draft.files = draft.files.filter(({ upload }) => !attach.includes(upload?.id));
		saveDraft(thread);
		if (thread === state.thread) this.showDraft();
	}

	/** The server refused a frame, or the connection was lost: the text stays in the box. */
	release(thread = null) {
		const { [thread]: _, ...others } = state.sending;
		state.sending = thread === null ? {} : others;
	}

	/** Show whether a run of the open thread writes an answer. */
	showRun() {
		byId("send").disabled = Boolean(state.sending[state.thread]);
		byId("send").hidden = state.run !== null;
		byId("stop").hidden = state.run === null;
	}

	/** Show the queued texts. */
	showQueue() {
		const entries = state.queue.map(({ id, text, hint }) => {
			const send = (type) => () => this.sendFrame({ type, id });
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

	// A run that would compact the thread: the reader decides first.

	ask(question) {
		const frame = this.find(question);
		if (!frame) return;
		if (frame.thread !== state.thread) {
			this.release(frame.thread);
			say(`The message in ${frame.thread} was not sent: it would compact the thread.`, true);
			return;
		}
		this.question = frame;
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
		this.release(frame?.thread);
		if (frame) this.request({ ...frame, compact });
	}

	cancel() {
		this.release(this.question.thread);
		this.question = null;
		this.input.focus();
	}
}
