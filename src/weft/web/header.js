// The head of the page: the open thread, its branches, and the buttons that change it.

import { byId, el, refill, visible } from "./dom.js";
import { effect } from "./signals.js";
import { branches, shownBranch, state } from "./state.js";

const PROGRAM_NAME = /^(claude|codex|session)-|[0-9a-f]{8}/; // ids of sessions and conversations
const NO_BRANCH = "(no branch)"; // a commit that was undone may be on none

/** Keep the head up to date; `pick(branch)` opens a branch. */
export function showHeader({ pick }) {
	byId("branch").addEventListener("change", ({ target }) => pick(target.value));
	effect(showTitle);
	effect(() => document.body.toggleAttribute("data-ready", state.ready));
	effect(() => (byId("offline").hidden = state.connected !== false));
	effect(showBranches);
	effect(showButtons);
}

/** The title, if a program named the thread; a name that a person chose stays the heading. */
function heading({ name, title }) {
	return title && PROGRAM_NAME.test(name) ? title : name;
}

function showTitle() {
	const { branch, view } = state;
	if (!view) return;
	const title = visible(heading(view));
	document.title = `${title} · Weft`;
	Object.assign(document.body.dataset, { thread: view.name, branch });
	byId("title").textContent = title;
	byId("title").title = view.name;
	byId("thread-name").textContent = title === visible(view.name) ? "" : visible(view.name);
}

function showBranches() {
	const shown = state.view && (shownBranch() ?? NO_BRANCH);
	if (!shown) return;
	const names = branches().includes(shown) ? branches() : [...branches(), shown];
	const select = byId("branch");
	if (names.join("\n") !== [...select.options].map(({ value }) => value).join("\n"))
		refill(select, ...names.map((name) => el("option", { value: name, disabled: name === NO_BRANCH }, name)));
	select.value = shown;
}

/** A thread cannot be changed while a run writes, or while an earlier commit is read. */
function showButtons() {
	const { at, compacting, run, view } = state;
	document.body.classList.toggle("running", run !== null);
	const isBusy = run !== null || at !== null || !view;
	byId("compact").disabled = isBusy || compacting || !view.total;
	byId("undo").disabled = isBusy || !view.head;
	byId("redo").disabled = isBusy || view.new; // redo works in an empty thread too
	for (const name of ["rename", "delete"]) byId(name).disabled = isBusy || view.new;
}
