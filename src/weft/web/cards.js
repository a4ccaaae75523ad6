// Cards for system events. A compaction has one card from its start to its end. The card shows the
// current step; steps that failed stay listed.

import { count, el, trusted } from "./dom.js";
import { post } from "./api.js";
import { displaySystemMessage } from "./system.js";

export const COMPACTED = "compact_boundary";
export const RETRY = "api_retry";
const LOSSES = "losses";
const PROGRESS = "compact_progress";
const FALLBACK = "compact_fallback";
const STARTED = "compaction_start";
const UNDER_WAY = "⚡ **Compacting**";
const LONG_NUMBER = /\d{4,}/g;

/** Which step of a compaction an event is, or null. */
function stepOf(event) {
	if (event?.subtype === COMPACTED) return "done";
	if (event?.subtype === PROGRESS) return "progress";
	if (event?.subtype === FALLBACK) return "fallback";
	if (event?.subtype === STARTED) return "running";
	if (event?.subtype !== "status") return null;
	if (event.compact_result === "failed") return "failed";
	return event.status === "compacting" ? "running" : null;
}

export function isCompaction(event) {
	return stepOf(event) !== null;
}

export class StatusCard {
	constructor(table) {
		this.table = table;
		this.node = el("li.system-message");
		this.heading = el("div.prose");
		this.steps = el("ul.steps");
		this.progress = el("p.progress.muted");
	}

	get isRunning() {
		return this.node.dataset.state === "running";
	}

	/** Show an event; returns false if it is hidden metadata. */
	take(event) {
		const shown = displaySystemMessage(this.table, event);
		if (!shown) return false;
		const step = stepOf(event);
		const text = step === "done" ? shown.text.replace(LONG_NUMBER, count) : shown.text;
		const isStep = step === "progress" || step === "fallback";
		const isFirst = !this.node.childNodes.length;
		if (isFirst) this.build(shown, isStep ? UNDER_WAY : text);
		this.node.dataset.subtype = shown.subtype;
		if (shown.subtype === RETRY) this.lastRetry = event;
		if (step) this.node.dataset.state = isStep ? "running" : step;
		this.progress.textContent = step === "progress" ? text : "";
		if (step === "fallback") this.steps.append(markdown(el("li"), text));
		else if (!isFirst && !isStep) markdown(this.heading, text);
		return true;
	}

	build(shown, text) {
		const look = this.table.looks[shown.kind];
		const icon = text.startsWith(shown.icon)
			? null
			: el("span.icon", { "aria-hidden": "true" }, shown.icon);
		this.node.classList.add(look.tone);
		const heading = shown.subtype === LOSSES ? lossList(text) : markdown(this.heading, text);
		const label = { class: "card-body", role: "note", "aria-label": look.title };
		this.body = el("div", label, heading, this.steps, this.progress);
		this.node.append(...[icon, this.body].filter(Boolean));
	}

	/** The request that was sent again is answered, or was given up. */
	endRetries() {
		const { attempt, error_status, upstream } = this.lastRetry;
		if (!upstream) return;
		const reason = error_status ? `${error_status} from ${upstream}` : `${upstream} could not be reached`;
		this.heading.dataset.text = "";
		this.heading.textContent = `Sent again ${attempt === 1 ? "once" : `${attempt} times`}: ${reason}`;
	}

	/** The run is over: a compaction that has not finished was stopped. */
	stop() {
		if (!this.isRunning) return;
		this.progress.textContent = "";
		this.node.dataset.state = "stopped";
		this.heading.textContent = "⚡ Compaction stopped. The thread is unchanged.";
	}
}

/** The cards of a finished run. All events of its compaction share one card. */
export function finishedCards(table, events) {
	const cards = [];
	let compaction = null;
	for (const event of events) {
		const joins = isCompaction(event) && compaction !== null;
		const card = joins ? compaction : new StatusCard(table);
		if (!card.take(event) || joins) continue;
		cards.push(card);
		if (isCompaction(event)) compaction = card;
	}
	return cards;
}

/** The losses of a request: one line that opens to the list. */
function lossList(text) {
	const [title, ...lines] = text.split("\n");
	const summary = el("summary", title.replaceAll("**", "").replace(/:$/, ""));
	const list = markdown(el("div.prose"), lines.join("\n"));
	return el("details.losses", summary, list);
}

/** Fill a node with untrusted Markdown: first as text, then as safe HTML from the server. */
function markdown(node, text) {
	node.textContent = text;
	node.dataset.text = text;
	post("/api/render", { text }).then(
		({ html }) => node.dataset.text === text && trusted(node, html),
		() => {},
	);
	return node;
}
