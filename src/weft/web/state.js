// What this tab shows, in one place. Everything else is on the server, runs included.
//
// Modules change these values and react to them with `effect` and `watch`; none keeps a copy.

import { store } from "./signals.js";

const SIDE_BRANCH = /^compaction-\d+$/; // made by the gateway

/**
 * thread, named, at   what the address names: a thread, a branch of it (null: its current one, which
 *                     the page follows), and the commit that is read (null: the newest)
 * branch, head        the open branch and the commit up to which its rows are shown
 * view                the facts of the shown thread: the answer of `/api/rows` without its rows
 * updates             how often the rows have changed; what takes longer to read follows it
 * row                 the message that has, or last had, the focus
 * run                 the run of the open branch: {id, model}
 * queue               texts that are sent when the run has ended
 * sending             frames that the server has not taken yet, by thread
 * composer            which model and agent answer, and how full the window is (`/api/composer`)
 * model               the model in the box; empty if the reader has to choose one
 * agents              who may answer (`weft serve --agent`)
 * connected           whether the socket is open; null: not tried yet
 * ready               whether the thread is shown and all later changes of it are pushed
 * tab                 what the panel on the right shows: `log` or `graph`
 * threadsOpen, logOpen   the lists that cover the conversation on a narrow screen
 * compacting          whether this page has asked for a compaction that has not ended
 */
export const state = store({
	thread: null,
	named: null,
	at: null,
	branch: null,
	head: null,
	view: null,
	updates: 0,
	row: null,
	run: null,
	queue: [],
	sending: {},
	composer: null,
	model: "",
	agents: ["weft"],
	connected: null,
	ready: false,
	tab: "log",
	threadsOpen: false,
	logOpen: false,
	compacting: false,
});

/** The thread, branch and commit for a read. */
export function place() {
	return { thread: state.thread, branch: state.named, until: state.at };
}

/** The branch of the commit that is read; null if no branch has it any more. */
export function shownBranch() {
	return state.at && state.view?.commit ? state.view.commit.branch : state.branch;
}

/** The place of what is shown beside the rows: log, gauge. */
export function shownPlace() {
	const branch = shownBranch();
	return { thread: state.thread, branch: branch ?? state.branch, until: state.at };
}

/** The branches that people work on: without those on which a client asked for its summaries. */
export function branches() {
	const all = state.view?.branches ?? [];
	return all.filter((name) => !SIDE_BRANCH.test(name) || name === state.branch);
}

/** Whether `thread` and `branch` are open now; what was asked for them may be shown. */
export function isOpen(thread, branch) {
	return thread === state.thread && branch === state.branch;
}
