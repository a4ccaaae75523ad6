// Merges and cherry-picks: what would change, and a choice for every conflict, before anything is
// written.

import { count, el, plural, refill } from "./dom.js";
import { post } from "./api.js";
import { openDialog } from "./dialog.js";
import { describe, diffLines, words } from "./diff.js";

const KINDS = {
	edited: "Both sides changed this message.",
	skipped: "One side left this message out, the other changed it.",
	folded: "One side compacted this message, the other changed or compacted it too.",
	answered: "Both sides have a result of this call.",
	setup: "Both sides changed the tools or parameters.",
};

/** Preview a merge of the branch `name` into `branch`, then do it. `done(answer)` follows. */
export function openMerge({ thread, branch, name, done }) {
	const request = { path: "/api/merge", fields: { thread, branch, name } };
	return openPreview({ request, title: `Merge ${name} into ${branch}`, label: "Merge", done });
}

/** Preview applying one commit to a branch, then do it. */
export function openCherryPick({ thread, branch, id, done }) {
	const request = { path: "/api/cherry-pick", fields: { thread, branch, id } };
	const title = `Apply commit ${id.slice(0, 7)} to ${branch}`;
	return openPreview({ request, title, label: "Apply", done });
}

const TYPING_MILLISECONDS = 300; // after the last key, before the preview is read again
const COMMIT = "application/x-weft-commit";
const DROP = "#drop-branches li, #graph-list .ref[data-branch]";

/** A handle to drag a message or commit onto a branch. Menus have the same for the keyboard. */
export function grip(id) {
	const ondragstart = (event) => {
		event.dataTransfer.setData(COMMIT, id);
		event.dataTransfer.effectAllowed = "copy";
	};
	const title = "Drag onto a branch to apply it there";
	return el("span.grip", { draggable: "true", "aria-hidden": "true", title, ondragstart });
}

/** While a handle is dragged, list the branches; `pick(id, branch)` is called for the one under it.
 *  The names of branches in the graph are targets, too. */
export function addDropTargets({ branches, pick }) {
	let list = null;
	const targetOf = (event) =>
		event.dataTransfer.types.includes(COMMIT) ? event.target.closest?.(DROP) : null;
	const mark = (target) => {
		document.querySelector(".drop-target")?.classList.remove("drop-target");
		target?.classList.add("drop-target");
	};
	addEventListener("dragstart", (event) => {
		if (!event.dataTransfer.types.includes(COMMIT)) return;
		const items = branches().map((name) => el("li", { "data-branch": name }, name));
		list = el("ul", { id: "drop-branches" }, ...items);
		// Not at once: Chromium ends a drag if the document changes while it starts.
		setTimeout(() => list && document.querySelector("main").append(list));
	});
	addEventListener("dragover", (event) => {
		const target = targetOf(event);
		mark(target);
		if (target) event.preventDefault();
	});
	addEventListener("drop", (event) => {
		const target = targetOf(event);
		if (!target) return;
		event.preventDefault();
		pick(event.dataTransfer.getData(COMMIT), target.dataset.branch);
	});
	addEventListener("dragend", () => {
		mark(null);
		list?.remove();
		list = null;
	});
}

async function openPreview({ request: { path, fields }, title, label, done }) {
	const answers = new Map();
	const commit = async () => done(await post(path, withAnswers(fields, answers)));
	const dialog = openDialog({
		id: "merge-dialog",
		title,
		wide: true,
		body: [el("p.muted", "Preparing the preview …")],
		buttons: [{ label, run: commit, id: "merge-commit" }],
	});
	const button = dialog.foot.querySelector("#merge-commit");
	button.disabled = true;
	const read = () => post(path, { ...withAnswers(fields, answers), preview: true });
	try {
		const preview = await read();
		const sides = { ours: fields.branch, theirs: fields.name ?? `commit ${fields.id.slice(0, 7)}` };
		show(dialog.body, { ...preview, sides }, answers, { read, ready: (isReady) => (button.disabled = !isReady) });
	} catch (error) {
		refill(dialog.body);
		dialog.fail(error.message);
	}
}

/** The fields of a request, with the answers that were given so far. */
function withAnswers(fields, answers) {
	const given = [...answers].filter(([, answer]) => isAnswered(answer));
	return given.length ? { ...fields, answers: resolve(given) } : fields;
}

/** `read()` previews it with the current answers; `ready(isReady)` is told whether it can be done. */
function show(body, preview, answers, { read, ready }) {
	const { conflicts } = preview;
	const left = el("p", { role: "status", class: "conflicts-left" });
	const facts = el("p.muted", { role: "status" });
	const table = el("div.diff");
	const title = el("h3", "What changes here");
	let reads = 0; // if reads overlap, only the newest one is shown
	let isNothing = false;
	let timer;
	const showResult = (result) => {
		isNothing = !result.lines.length && !conflicts.length && !result.setup_changes.length;
		facts.textContent = isNothing ? "There is nothing new to bring in." : describeResult(result);
		title.hidden = !result.lines.length;
		refill(table, ...diffLines(result));
	};
	const readAgain = async () => {
		reads += 1;
		const number = reads;
		try {
			const result = await read();
			if (number === reads) showResult(result);
		} catch (error) {
			if (number === reads) facts.textContent = error.message;
		}
	};
	const check = () => {
		const open = conflicts.filter(({ id }) => !isAnswered(answers.get(id))).length;
		const text = open ? `${plural(open, "conflict")} left to resolve.` : "All conflicts are resolved.";
		left.textContent = conflicts.length ? text : "";
		ready(!isNothing && open === 0);
	};
	const update = (wait = 0) => {
		check();
		clearTimeout(timer);
		timer = setTimeout(readAgain, wait);
	};
	showResult(preview);
	refill(
		body,
		facts,
		...conflicts.map((each, index) => conflictBox({ ...each, sides: preview.sides }, index, answers, update)),
		conflicts.length ? left : null,
		title,
		table,
	);
	check();
}

/** What a merge would do, in a few sentences. */
function describeResult(result) {
	const facts = [describe(result)];
	if (result.fast_forward) facts.push("Nothing else was written here, so the branch only moves forward.");
	if (result.setup_changes.length) facts.push(`Changes ${result.setup_changes.join(", ")} of the requests.`);
	if (result.cache_lost) facts.push(`${count(result.cache_lost)} tokens of cached prompt would be read again.`);
	return facts.join(" ");
}

/** One conflict: both sides, and a choice. */
function conflictBox(conflict, index, answers, update) {
	const { id, kind, role, ours, theirs, sides } = conflict;
	const textOf = (name) => {
		const text = { ours, theirs }[name];
		if (text === null) return [el("i", kind === "folded" ? "(compacted)" : "(removed)")];
		return conflict.words ? words(conflict.words, name === "ours" ? "before" : "after") : [text];
	};
	const edited = el("textarea", { rows: 4, "aria-label": "Your text", hidden: true });
	edited.value = ours ?? theirs ?? "";
	const choices = [
		["ours", "Keep ours"],
		["theirs", "Take theirs"],
		["concat", "Both"],
		...(kind === "setup" ? [] : [["text", "Edit …"]]),
	];
	const choose = (choice) => {
		edited.hidden = choice !== "text";
		answers.set(id, choice === "text" ? edited : choice);
		if (choice === "text") edited.focus();
		update();
	};
	edited.addEventListener("input", () => update(TYPING_MILLISECONDS));
	const radios = choices.map(([value, label]) => {
		const input = el("input", { type: "radio", name: `conflict-${index}`, value, onchange: () => choose(value) });
		return el("label", input, ` ${label}`);
	});
	return el(
		"fieldset.conflict",
		{ "data-conflict": id },
		el("legend", `Conflict ${index + 1}: ${role}`),
		el("p.muted", KINDS[kind] ?? kind),
		el(
			"div.diff-line.changed",
			side("before", `Ours: ${sides.ours}`, textOf("ours")),
			side("after", `Theirs: ${sides.theirs}`, textOf("theirs")),
		),
		el("div.choices", ...radios),
		edited,
	);
}

function side(name, title, text) {
	return el("div", { class: `diff-side ${name}` }, el("p.diff-who", el("b", title)), el("div.diff-text", ...text));
}

function isAnswered(answer) {
	return typeof answer === "string" || Boolean(answer?.value.trim());
}

/** The answers as the server takes them. */
function resolve(answers) {
	const entries = [...answers].map(([id, answer]) => [id, typeof answer === "string" ? answer : answer.value]);
	return Object.fromEntries(entries);
}
