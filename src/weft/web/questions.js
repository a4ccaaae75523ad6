// What a run asks: whether a tool may run, and what an agent wants to know.
//
// A question is shown in every tab on the thread until somebody answers it, in any of them, or the
// run ends. Everything in it is the model's text, so it is only ever written as text.

import { button, byId, el } from "./dom.js";
import { get, post } from "./api.js";
import { registerSource } from "./commands.js";
import { excerpt } from "./tool_panel.js";

const PERMISSIONS = [
	["once", "Allow once", null, "Allowed once."],
	["thread", "Allow in this thread", "quiet", "Allowed in this thread."],
	["always", "Always allow", "quiet", "Allowed from now on, in all threads."],
	["deny", "Deny", "danger", "Denied."],
];
const UNANSWERED = "Not answered: the question is over.";

// The palette lists the tools that are always allowed, so that this can be revoked.
registerSource({
	group: "Always allowed tools",
	entries: async (_, page) => {
		const { always } = await get("/api/permissions");
		const forget = (tool) => async () => page.say((await post("/api/forget", { tool })).message);
		return always.map((tool) => ({ title: `Ask again about ${tool}`, run: forget(tool) }));
	},
});

export class Questions {
	/** `append(node)` adds a card behind the rows; `answer(id, value)` sends an answer. */
	constructor({ append, answer }) {
		this.append = append;
		this.answer = answer;
		this.cards = new Map();
	}

	/** Forget the cards: the rows are read again. */
	reset() {
		this.cards.clear();
	}

	/** Show a question, or its answer; returns false for other frames. */
	receive(frame) {
		if (frame.type === "answered") this.close(frame);
		else if (frame.type !== "question") return false;
		else if (!this.cards.has(frame.id)) this.show(frame);
		return true;
	}

	show(frame) {
		const card = frame.kind === "permission" ? this.permission(frame) : this.choice(frame);
		this.cards.set(frame.id, card);
		this.append(card.node);
		byId("live").textContent = card.title;
	}

	/** May this tool run? */
	permission({ id, tool, server, input }) {
		const name = server ? `${tool} of ${server}` : String(tool);
		const whole = typeof input === "string" ? input : JSON.stringify(input, null, 2);
		const buttons = PERMISSIONS.map(([value, label, kind]) =>
			button(label, () => this.send(id, value), { class: kind, "data-answer": value }),
		);
		const title = `Allow ${name}?`;
		const actions = el("p.line.answers", ...buttons);
		const body = el(
			"div.card-body",
			el("b", "Allow ", el("code", name), "?"),
			el("code.argument", excerpt(input)),
			el("details", { "data-key": `question:${id}` }, el("summary", "Whole input"), el("pre", whole)),
			actions,
		);
		const outcome = (answer) => PERMISSIONS.find(([value]) => value === answer)?.[3];
		return { node: frameOf(title, body), title, actions, outcome };
	}

	/** What an agent wants to know: one or more questions with options, or a text of one's own. */
	choice({ id, questions }) {
		const fields = (Array.isArray(questions) ? questions : []).map((question, index) =>
			choiceField(question, `${id}-${index}`),
		);
		const submit = el("button", { type: "submit" }, "Answer");
		const actions = el("p.line.answers", submit);
		const send = (event) => {
			event.preventDefault();
			const answers = Object.fromEntries(fields.map(({ question, read }) => [question, read()]));
			if (Object.values(answers).every((text) => text.trim())) this.send(id, answers);
		};
		const title = "The agent asks";
		const form = el("form", { onsubmit: send }, ...fields.map(({ node }) => node), actions);
		const body = el("div.card-body", el("b", title), form);
		const outcome = (answer) => answer && Object.values(answer).join("; ");
		return { node: frameOf(title, body), title, actions, outcome };
	}

	send(id, value) {
		const card = this.cards.get(id);
		if (!card || card.isSent) return;
		if (this.answer(id, value) === false) return;
		card.isSent = true;
		for (const control of card.node.querySelectorAll("button, input")) control.disabled = true;
	}

	/** The question is over; `answer` is null if nobody answered it. */
	close({ id, answer }) {
		const card = this.cards.get(id);
		if (!card) return;
		for (const control of card.node.querySelectorAll("input")) control.disabled = true;
		card.actions.replaceChildren(card.outcome(answer) ?? UNANSWERED);
		card.actions.className = "muted";
		card.node.dataset.state = "answered";
	}

	/** The run is over: nothing waits for an answer any more. */
	finish() {
		for (const [id, card] of this.cards) {
			if (card.node.dataset.state !== "answered") this.close({ id, answer: null });
		}
	}
}

function frameOf(title, body) {
	const options = { class: "system-message yellow question", role: "group", "aria-label": title };
	return el("li", options, body);
}

/** One question of an agent: its options, and a box for another answer. */
function choiceField({ question, header, options, multiSelect }, id) {
	const text = String(question ?? "");
	const type = multiSelect ? "checkbox" : "radio";
	const inputs = (Array.isArray(options) ? options : []).map(({ label, description }) => {
		const input = el("input", { type, name: id, value: String(label ?? "") });
		const note = description ? el("span.muted", ` ${description}`) : null;
		return { input, node: el("label", input, ` ${label ?? ""}`, note) };
	});
	const other = el("input", { type: "text", placeholder: "Another answer", "aria-label": "Another answer" });
	const read = () => {
		const chosen = inputs.filter(({ input }) => input.checked).map(({ input }) => input.value);
		return [...chosen, other.value.trim()].filter(Boolean).join(", ");
	};
	const legend = el("legend", header ? `${header}: ` : "", text);
	const node = el("fieldset", legend, ...inputs.map((each) => each.node), other);
	return { node, question: text, read };
}
