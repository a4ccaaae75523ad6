// Differences side by side: two commits, branches or tags, with the words that changed.

import { button, count, el, plural, refill } from "./dom.js";
import { get } from "./api.js";
import { openDialog } from "./dialog.js";

const SIGNS = { added: "+", removed: "−", changed: "~" };

/** Compare two places of a thread. `places` are names that can be chosen: [{value, label}]. */
export function openDiff({ thread, places, a, b }) {
	const facts = el("p.muted", { role: "status" });
	const table = el("div.diff");
	const select = (id, label, value) => {
		const options = places.map((place) =>
			el("option", { value: place.value, selected: place.value === value }, place.label),
		);
		const node = el("select", { id, "aria-label": label }, ...options);
		node.addEventListener("change", () => load());
		return node;
	};
	const [from, to] = [select("diff-from", "Before", a), select("diff-to", "After", b)];
	const exchange = () => {
		[from.value, to.value] = [to.value, from.value];
		load();
	};
	const swap = button("⇄", exchange, { "aria-label": "Swap the sides" });
	let reads = 0; // if reads overlap, only the newest one is shown
	const load = async () => {
		facts.textContent = "Comparing …";
		reads += 1;
		const number = reads;
		try {
			const diff = await get("/api/diff", { thread, a: from.value, b: to.value });
			if (number !== reads) return;
			facts.textContent = describe(diff);
			refill(table, ...diffLines(diff));
		} catch (error) {
			facts.textContent = error.message;
			refill(table);
		}
	};
	const head = el("div.diff-head", from, swap, to);
	openDialog({ id: "diff-dialog", title: "Compare", body: [head, facts, table], wide: true, cancel: "Close" });
	load();
}

/** What a difference is, in one sentence. */
export function describe({ lines, left_out, before, after }) {
	if (!lines.length) return "No difference.";
	const parts = ["added", "removed", "changed"]
		.map((kind) => [lines.filter((line) => line.kind === kind).length, kind])
		.filter(([number]) => number)
		.map(([number, kind]) => `${count(number)} ${kind}`);
	const more = left_out ? `, and ${count(left_out)} more differences` : "";
	return `${parts.join(", ")}${more}. ${count(before)} → ${count(after)} tokens.`;
}

/** The lines of a difference: the left side is before, the right side after. Messages that were
 *  removed stand beside those that were added in their place. */
export function diffLines({ lines, unchanged }) {
	const nodes = [];
	const removed = []; // rows whose right side is free
	for (const line of lines) {
		if (line.unchanged) nodes.push(gap(line.unchanged));
		if (line.unchanged || line.kind === "changed") removed.length = 0;
		const free = line.kind === "added" ? removed.shift() : null;
		if (free) {
			free.lastChild.replaceWith(side(line, "after"));
			free.classList.add("added");
			free.setAttribute("aria-label", `${free.getAttribute("aria-label")}; ${line.role}, added`);
			continue;
		}
		const label = { role: "group", "aria-label": `${line.role}, ${line.kind}` };
		const node = el("div", { class: `diff-line ${line.kind}`, ...label }, side(line, "before"), side(line, "after"));
		if (line.kind === "removed") removed.push(node);
		nodes.push(node);
	}
	if (unchanged) nodes.push(gap(unchanged));
	return nodes;
}

function gap(number) {
	return el("p.diff-gap", `${plural(number, "unchanged message")}`);
}

function side(line, name) {
	const value = line[name];
	if (!value) return el("div", { class: `diff-side ${name} none` });
	const sign = el("span.sign", { "aria-hidden": "true" }, line.kind === "changed" ? (name === "before" ? "−" : "+") : SIGNS[line.kind]);
	const mark = value.priority === "normal" ? null : el("span.badge", value.priority);
	const cut = value.length > value.text.length ? el("p.muted", `and ${count(value.length - value.text.length)} more characters`) : null;
	const text = el("div.diff-text", ...(line.words ? words(line.words, name) : [value.text]));
	return el("div", { class: `diff-side ${name}` }, el("p.diff-who", sign, el("b", line.role), mark), text, cut);
}

/** One side of a changed text; words that only it has are marked. */
export function words(pieces, name) {
	const own = name === "before" ? "-" : "+";
	return pieces
		.filter(([sign]) => sign === "=" || sign === own)
		.map(([sign, text]) => (sign === "=" ? text : el(own === "-" ? "del" : "ins", {}, text)));
}
