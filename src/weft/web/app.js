// The page: one thread, its log, and a socket that pushes what happens in it.
//
// All state is on the server, runs included. The page is told about every change, and reads only
// what has changed. The thread and branch of this tab are in its address, so reloads and second
// tabs work, and a run continues when its tab is closed.

import { button, byId, el, refill } from "./dom.js";
import { get, post, Socket } from "./api.js";
import { Chat } from "./chat.js";
import { handleKey, register, registerSource, setPage } from "./commands.js";
import { Compaction } from "./compaction.js";
import { Composer } from "./composer.js";
import { askText } from "./dialog.js";
import { openDiff } from "./diff.js";
import { Exchanges } from "./exchanges.js";
import { FIRST_ROWS, first, readAddress, rowsAddress } from "./first_read.js";
import { Graph } from "./graph.js";
import { History } from "./history.js";
import { Live } from "./live.js";
import { Manage } from "./manage.js";
import { addDropTargets, openCherryPick, openMerge } from "./merge.js";
import { registerPageCommands } from "./page_commands.js";
import { Palette } from "./palette.js";
import { Roving, watchScrollables } from "./roving.js";
import { RowActions } from "./row_actions.js";
import { Threads } from "./threads.js";
import { Travel } from "./travel.js";
import { UsageDialog } from "./usage.js";

const BEFORE_FIRST = "start"; // the value of `until` for the state before the first commit
const HIDDEN_MILLISECONDS = 200; // how often a tab in the background handles its frames
const SIDE_MILLISECONDS = 400; // how long log and gauge wait for further changes

const PROGRAM_NAME = /^(claude|codex|session)-|[0-9a-f]{8}/; // ids of sessions and conversations
const TOAST_MILLISECONDS = 6000;
const CHANGES = ["undo", "redo", "compact", "rename", "delete"]; // not while a run writes
const LAST_THREAD = "weft.thread"; // the storage key of the thread that was open last

// `named` is the branch of the address; without one, the page follows the thread's current branch.
// `at` is the commit that is read; null: the newest, which the page follows.
const current = {
	thread: null, branch: null, named: null, head: null, run: null, row: null, at: null,
};
let chat;
let live;
let exchanges;
let socket;

const history = new History({ actions: { revert } });
const graph = new Graph({
	actions: { read: ({ id }) => readCommit(id) },
	commands: graphCommands,
});
const travel = new Travel({ back: () => readCommit(null), branch: openBranchDialog });
const composer = new Composer({ send: (frame) => socket.send(frame), say });
const threads = new Threads({
	onpick: (name) => go(name),
	onhit: openHit,
	onrestore: (name) => manage.restore(name),
});
const manage = new Manage({
	current: () => current.thread,
	say,
	onrenamed: (old, name) => {
		composer.moveChoice(old, name);
		return go(name, current.named);
	},
	ondeleted: openAnother,
	onrestored: (name) => go(name),
});

/** What commands use. */
const page = {
	get thread() {
		return current.thread;
	},
	get branch() {
		return current.branch;
	},
	get branches() {
		return [...byId("branch").options].map(({ value }) => value);
	},
	get head() {
		return current.head;
	},
	/** The id of the message that has, or last had, the focus; null if it is not shown any more. */
	get row() {
		return current.row && chat.rows.find(current.row) ? current.row : null;
	},
	get isRunning() {
		return current.run !== null;
	},
	/** Whether an earlier commit is read. */
	get isPast() {
		return current.at !== null;
	},
	go,
	openHit,
	refresh,
	change,
	say,
	pick: pickOnto,
	annotate: (id, priority) =>
		change("/api/annotate", { id, priority }).then(() => focusRow(id)),
};

const rowActions = new RowActions({
	page,
	retry: () => {
		composer.at(current.thread, current.branch); // the rows of a new branch may not be read yet
		composer.retry();
	},
	branchAt: openBranchDialog,
	more: (row) => compaction.items(row),
});

const compaction = new Compaction({
	page,
	model: () => composer.model.value.trim(),
	position: (id) => chat.rows.position(id),
	mark: (id) => chat.markRange(id),
	done: () => chat.toCompaction(),
	refresh: refreshChanged,
});

async function start() {
	const opened = readAddress();
	const table = await first.table;
	const annotate = (priority) => (id) => page.annotate(id, priority);
	const actions = {
		pin: annotate("pinned"),
		skip: annotate("skip"),
		restore: annotate("normal"),
		openFold,
		openVersion,
		openRow: (id) => go(current.thread, current.named, id),
		permalink: (id) => address({ thread: current.thread, branch: current.named, row: id }),
		retry: () => composer.retry(),
		menu: (row) => rowActions.button(row),
	};
	const load = (from, count) => get("/api/rows", { ...place(), from, count });
	chat = new Chat({ table, actions, load, address: place });
	live = new Live({ chat, table, confirm, answer });
	exchanges = new Exchanges({ append: (node) => chat.append(node), table });
	socket = new Socket("/ws", { onframe: receive, onstate: connection });
	addListeners();
	setPage(page);
	registerPageCommands({ drawer, rows: addRoving() });
	registerHistoryCommands();
	new Palette();
	new UsageDialog({ thread: () => current.thread, open: (name) => go(name) });
	watchScrollables(byId("conversation"), "pre, .prose table");
	const models = composer.loadModels(); // an upstream may take seconds
	const list = threads.load(); // the messages do not wait for it
	const { thread, branch, row, at } = opened;
	await open(thread ?? firstThread(await list), branch, row, at);
	await Promise.all([models, list]);
	await composer.refresh();
}

/** The thread to open if the address names none: the last one open, the sample, or the newest. */
function firstThread(list) {
	const last = localStorage.getItem(LAST_THREAD);
	const thread = list.find(({ name }) => name === last) ?? list.find(({ sample }) => sample);
	return (thread ?? list[0])?.name ?? "default";
}

/** The address of a thread, of a message or a commit: `#thread=name&branch=name&row=id&at=id`. */
function address(fields) {
	const entries = Object.entries(fields).filter(([, value]) => value);
	return `#${new URLSearchParams(entries)}`;
}

/** The thread, branch and commit for a read. */
function place() {
	return { thread: current.thread, branch: current.named, until: current.at };
}

function go(thread, branch = null, row = null, at = null, commit = null) {
	window.history.pushState(null, "", address({ thread, branch, row, at }));
	drawer("threads", false);
	return open(thread, branch, row, at, commit);
}

/** Open what a search found: a message where it is, or the thread as of the commit of a tag. */
function openHit(thread, { kind, id, commit }) {
	return kind === "tag" ? go(thread, null, null, commit) : go(thread, null, id, null, commit);
}

/** Read the thread as of a commit; null: the newest. */
function readCommit(id) {
	if (matchMedia("(max-width: 1180px)").matches) drawer("log", false);
	return go(current.thread, current.named, null, id);
}

async function open(thread, branch = null, row = null, at = null, commit = null) {
	Object.assign(current, { thread, branch, named: branch, head: null, at });
	running(null); // until the server says otherwise
	setReady(false);
	exchanges.clear();
	chat.versions = {};
	composer.showQueue([]);
	composer.release();
	localStorage.setItem(LAST_THREAD, thread);
	live.reset();
	chat.clearTail(); // what streams belongs to the thread or branch that was open
	opening += 1;
	await reload({ row, commit }).finally(() => (opening -= 1));
	watch();
}

let opening = 0; // how many threads are being opened

/** The open thread was deleted: show the newest of the others. */
async function openAnother(deleted) {
	const list = await threads.load(null);
	const other = list.find(({ name }) => name !== deleted);
	await go(other?.name ?? "default");
}

function focusRow(id) {
	chat.rows.find(id)?.focus({ preventScroll: true });
}

// Reading. If reads overlap, only the newest one is shown.

let reads = 0;

async function readRows(query) {
	reads += 1;
	const number = reads;
	const address = rowsAddress({ ...place(), ...query });
	const view = await (first.take(address) ?? get(address));
	return number === reads ? view : null;
}

/** Read the thread and show it from its end, or around a row; up to the commit `until`. If the
 *  branch does not have the row, the thread is shown as of `commit`. */
async function reload({ row = null, until = current.at, commit = null } = {}) {
	try {
		const view = await readRows({ around: row, until, count: FIRST_ROWS, isFirst: true });
		if (!view) return;
		live.reset();
		chat.show(view);
		shown(view);
		if (!row || !chat.reveal(row)) await chat.toEnd();
		if (view.part) await refresh(); // the whole thread
	} catch (error) {
		const folded = row && !until ? await beforeCompaction(row) : null;
		const at = folded ?? (until ? null : commit);
		if (at) {
			const { thread, named } = current;
			if (row === at) row = null; // the note of a commit without a message
			window.history.replaceState(null, "", address({ thread, branch: named, row, at }));
			current.at = at;
			await reload({ row, until: at });
			if (folded) say("This message was compacted. This is the thread as it was before.");
		} else if (row) {
			say(error.message, true);
			await reload({ until });
		} else {
			chat.clear();
			chat.fail(error.message);
		}
	}
}

/** The commit at which a compacted message can be read; null if it was removed in another way. */
async function beforeCompaction(row) {
	const { thread, named } = current;
	const answer = await get("/api/locate", { thread, branch: named, row }).catch(() => null);
	return answer?.at ?? null;
}

/** Read what has changed and patch it in. `clear` removes what streamed: it is in the rows now. */
async function refresh({ until = null, clear = () => {} } = {}) {
	if (current.at) return showSides(); // an earlier commit never changes
	if (!current.head || current.isPart) {
		const view = await readRows({ until, count: FIRST_ROWS }).catch(report);
		if (view) replaceAll(view, clear, chat.anchor()); // the reader may have scrolled already
		return;
	}
	const view = await readRows({ since: current.head, until }).catch(report);
	if (!view) return;
	const wasAtEnd = chat.atEnd();
	if (view.appended && view.branch === current.branch && chat.update(view, clear)) {
		shown(view);
		if (wasAtEnd) await chat.toEnd();
		return;
	}
	const anchor = wasAtEnd ? null : chat.anchor();
	const around = anchor && (await readRows({ around: anchor.id, until }).catch(() => null));
	replaceAll(around || (anchor ? await readRows({ until }).catch(report) : view), clear, anchor);
}

/** Show a thread whose earlier rows have changed; rows that stay keep their nodes. */
function replaceAll(view, clear, anchor = null) {
	if (!view) return;
	const wasAtEnd = chat.atEnd();
	clear();
	chat.replace(view);
	shown(view);
	if (wasAtEnd || !chat.restore(anchor)) chat.toEnd();
}

function report(error) {
	say(error.message, true);
	return null;
}

/** The rows are shown: show what belongs to them. */
function shown(view) {
	Object.assign(current, { branch: view.branch, head: view.head, isPart: view.part });
	showHead(view);
	travel.show(current.at ? view : {}); // a run is shown after the commit before it: that is no past
	graph.mark(current.at);
	clearTimeout(shown.timer);
	shown.timer = setTimeout(showSides, shown.thread === view.name ? SIDE_MILLISECONDS : 0);
	shown.thread = view.name;
}

/** Open another version of a message, on its branch; the arrow keeps the focus. */
async function openVersion({ branch, row }, arrow) {
	await go(current.thread, branch, row);
	await showVersions();
	const buttons = [...(chat.rows.find(row)?.querySelectorAll(".versions button:enabled") ?? [])];
	(buttons.find(({ dataset }) => dataset.act === arrow) ?? buttons[0])?.focus({ preventScroll: true });
}

/** Another version of the message that has the focus. */
function stepVersion(by) {
	const versions = chat.versions[current.row] ?? [];
	const other = versions[versions.findIndex((each) => each.current) + by];
	return other && openVersion(other, by > 0 ? "next" : "previous");
}

async function showVersions() {
	const { thread, branch, at } = current;
	const hasOthers = page.branches.length > 1 && !at;
	const answer = hasOthers ? await get("/api/versions", { thread, branch }).catch(() => null) : null;
	if (thread === current.thread && branch === current.branch) chat.setVersions(answer?.versions ?? {});
}

/** The log and the gauge: they take longer than the rows, and nobody waits for them. */
async function showSides() {
	const { thread, branch } = current;
	composer.refresh();
	showVersions();
	if (!byId("graph-panel").hidden) graph.load(thread);
	const log = await get("/api/log", { thread, branch }).catch(() => null);
	if (log && thread === current.thread && branch === current.branch)
		history.show(thread, branch, log.commits);
}

/** The title, if a program named the thread; a name that a person chose stays the heading. */
function heading({ name, title }) {
	return title && PROGRAM_NAME.test(name) ? title : name;
}

function showHead(view) {
	const title = heading(view);
	document.title = `${title} · Weft`;
	Object.assign(document.body.dataset, { thread: view.name, branch: view.branch });
	byId("title").textContent = title;
	byId("title").title = view.name;
	byId("thread-name").textContent = title === view.name ? "" : view.name;
	const branches = view.branches.map((name) =>
		el("option", { value: name, selected: name === view.branch }, name),
	);
	const names = view.branches.join("\n");
	if (names !== showHead.names) refill(byId("branch"), ...branches);
	showHead.names = names;
	byId("branch").value = view.branch;
	threads.select(view.name);
	composer.at(current.thread, view.branch);
	const isRunning = current.run !== null || current.at !== null;
	byId("compact").disabled = isRunning || !view.total;
	byId("undo").disabled = isRunning || !view.head;
	byId("redo").disabled = isRunning || view.new; // redo works in an empty thread too
	for (const name of ["rename", "delete"]) byId(name).disabled = isRunning || view.new;
}

/** Make a change, then show the thread again. */
async function change(path, body = {}) {
	try {
		const answer = await post(path, { thread: current.thread, branch: current.branch, ...body });
		await refresh();
		say(answer.message);
		return answer;
	} catch (error) {
		say(error.message, true);
		return null;
	}
}

function revert(id) {
	return change("/api/revert", { id });
}

function openFold(commit) {
	drawer("log", true);
	history.open(commit);
}

/** Show one line at the bottom, which screen readers announce; `action` is a button in it. */
function say(text, isError = false, action = null) {
	const toast = byId("toast");
	const follow = chat?.atEnd();
	toast.textContent = text ?? "";
	toast.className = isError ? "error" : "";
	if (action) toast.append(button(action.label, action.run, { class: null }));
	clearTimeout(say.timer);
	say.timer = setTimeout(() => (toast.textContent = ""), action?.shows ?? TOAST_MILLISECONDS);
	if (follow) chat.toEnd(); // the line makes the conversation shorter
}

/** Show how a compaction goes that somebody started in a page. When it has ended, the rows say so:
 *  the next read removes its card. */
async function reportCompaction(event) {
	const isAtEnd = chat.atEnd();
	live.receive(event);
	if (isAtEnd) await chat.toEnd();
}

/** The thread has changed, by somebody else or by this page. */
async function refreshChanged() {
	if (opening) return; // the answer to `watch` makes the page read again
	await refresh();
	if (current.run === null) live.removeFinished();
}

// Frames. They are handled in order, at most once per animation frame: many pieces of text are one
// change of the document.

const inbox = [];
let draining = null;

function receive(frame) {
	inbox.push(frame);
	draining ??= nextFrame().then(drain);
	return draining;
}

function nextFrame() {
	return new Promise((resolve) => {
		if (document.hidden) setTimeout(resolve, HIDDEN_MILLISECONDS);
		else requestAnimationFrame(resolve);
	});
}

async function drain() {
	while (inbox.length) {
		try {
			await handle(inbox.shift());
		} catch (error) {
			console.error(error);
		}
	}
	draining = null;
	live.flush();
	exchanges.flush();
	document.body.classList.toggle("watching", exchanges.isActive);
}

function handle(frame) {
	if (typeof frame !== "object" || frame === null) return undefined;
	if (frame.type === "runs") return threads.mark(frame.runs);
	if (frame.type === "threads") return threads.changed();
	if (frame.type === "started") composer.began(frame.request); // even if another thread is open now
	if (current.at && frame.type !== "changed") return undefined; // shown when the reader comes back
	if (frame.thread !== undefined && frame.thread !== current.thread) return undefined;
	if (frame.type === "exchange") return setExchange(frame);
	if (frame.type === "changed") return current.run === null ? refreshChanged() : undefined;
	if (frame.branch !== undefined && frame.branch !== current.branch) return undefined;
	if (frame.type === "report") return reportCompaction(frame.event);
	if (exchanges.receive(frame) || live.receive(frame)) return undefined;
	const handler = {
		watching: () => join(frame),
		started: () => began(frame),
		queued: () => composer.queued(frame),
		queue: () => composer.showQueue(frame.queue),
		message_complete: () => ended(frame),
		interrupted: () => ended(frame),
		error: () => (frame.scope === "frame" ? refused(frame) : ended(frame)),
		compaction_required: () => composer.ask(frame),
	}[frame.type];
	return handler?.();
}

/** Note in the document whether the thread is shown and all later changes of it are pushed. */
function setReady(isReady) {
	document.body.toggleAttribute("data-ready", isReady);
}

/** Ask for the frames of this thread's runs; the server answers with `watching`. */
function watch() {
	if (current.at) return setReady(true); // an earlier commit never changes
	if (current.branch) socket.send({ type: "watch", thread: current.thread, branch: current.branch });
}

/** The answer to `watch`: show the thread as it was before the run, then the run's frames. */
async function join(state) {
	const wasRunning = current.run !== null;
	composer.refresh(); // a question may have been lost with the connection
	composer.showQueue(state.queue ?? []);
	exchanges.clear(); // the server sends them again
	if (!state.run) {
		running(null);
		await refresh({ clear: () => wasRunning && chat.clearTail() });
		setReady(true);
		return;
	}
	running(state.run, state.model);
	await reload({ until: state.base ?? BEFORE_FIRST });
	for (const frame of state.frames) live.receive(frame);
	live.flush();
	await chat.toEnd();
	setReady(true);
}

async function began(frame) {
	running(frame.run, frame.model);
	if (current.head !== frame.base) await refresh({ until: frame.base ?? BEFORE_FIRST });
	await chat.toEnd();
}

/** Another program's exchange in this thread has a new state. */
async function setExchange(frame) {
	const isOver = frame.state === "done" || frame.state === "failed";
	if (!isOver && frame.head !== current.head && current.run === null) await refresh();
	if (frame.branch !== current.branch && !exchanges.knows(frame)) return;
	const isAtEnd = chat.atEnd();
	exchanges.receive(frame);
	const isStored = frame.state === "failed" || frame.recorded === "store";
	if (isOver && isStored && current.run === null)
		await refresh({ clear: () => exchanges.settle() });
	if (isAtEnd) await chat.toEnd();
}

/** The server refused a frame: the text stays in the box. */
function refused(frame) {
	composer.release();
	say(frame.message, true);
}

/** The run is over. Its answer, or its attempt with the reason, is in the store now. */
async function ended(frame) {
	const text = live.finish();
	const isStopped = frame.type === "interrupted";
	running(null);
	byId("live").textContent = isStopped ? "Stopped." : (frame.message ?? text);
	await refresh({ clear: () => chat.clearTail() });
	live.reset();
	const isShown = document.querySelector("#conversation > .attempt:not(.old)") !== null;
	if (frame.type === "error" && !isShown) chat.fail(frame.message);
	await chat.toEnd();
}

function running(run, model = null) {
	current.run = run;
	composer.running(run !== null, model);
	document.body.classList.toggle("running", run !== null);
	for (const name of CHANGES) byId(name).disabled ||= run !== null;
}

function interrupt() {
	socket.send({ type: "interrupt", thread: current.thread, branch: current.branch });
}

function confirm(compact) {
	socket.send({ type: "confirm", thread: current.thread, branch: current.branch, compact });
}

/** Answer a question of the run; false without a connection. */
function answer(id, value) {
	const { thread, branch } = current;
	return socket.send({ type: "answer", thread, branch, id, answer: value });
}

/** Runs go on without a connection. When it is back, `watch` gets what was missed. */
function connection(state) {
	byId("offline").hidden = state === "open";
	if (state === "open") {
		watch(); // its answer makes the page read what it has missed
	} else {
		setReady(false);
		composer.release();
	}
}

async function newThread(event) {
	event.preventDefault();
	const name = byId("new-name").value.trim();
	if (!name) return;
	byId("new-name").value = "";
	await go(name);
	byId("words").focus();
}

/** What can be done with a commit of the graph. */
function graphCommands(commit) {
	const names = commit.refs.filter((name) => !name.startsWith("tag:") && name !== current.branch);
	const tags = commit.refs.filter((name) => name.startsWith("tag:")).map((name) => name.slice(4));
	const merges = names.map((name) => ({ label: `Merge ${name}`, run: () => merge(name) }));
	return [
		{ label: "Branch from here", run: openBranchDialog },
		{ label: "Compare", run: ({ id }) => compare(id), title: "Compare it with this branch" },
		{ label: "Cherry-pick", run: pick, title: `Apply this commit to ${current.branch}` },
		...merges,
		{ label: "Tag …", run: openTagDialog },
		{ label: "Note …", run: ({ id }) => rowActions.note(id) },
		...names.map((name) => ({
			label: `Delete branch ${name}`,
			run: () => change("/api/delete-branch", { name }),
		})),
		...tags.map((name) => ({
			label: `Delete tag ${name}`,
			run: () => change("/api/untag", { name }),
		})),
	];
}

/** Compare a commit, branch or tag with the open branch. */
function compare(a = null) {
	const chips = Object.values(graph.refs ?? {}).flat();
	const names = [...new Set([...page.branches, ...chips.filter((name) => name.startsWith("tag:"))])];
	const places = names.map((name) => ({
		value: name.replace(/^tag:/, ""),
		label: name.replace(/^tag:/, "tag "),
	}));
	for (const id of [a, current.at])
		if (id && !names.includes(id)) places.push({ value: id, label: `commit ${id.slice(0, 7)}` });
	const other = page.branches.find((name) => name !== current.branch) ?? current.branch;
	openDiff({ thread: current.thread, places, a: a ?? other, b: current.branch });
}

function openTagDialog({ id }) {
	const run = async (name) => (await change("/api/tag", { name, at: id })) !== null;
	askText({ id: "tag-dialog", title: `Tag the commit ${id.slice(0, 7)}`, label: "Name", run });
}

function merge(name) {
	openMerge({ ...place(), branch: current.branch, name, done: changed });
}

function pick({ id }) {
	pickOnto(id, current.branch);
}

/** Apply a commit to a branch, after a preview; then that branch is shown. */
function pickOnto(id, branch) {
	const done = async ({ message }) => {
		await go(current.thread, branch === current.branch ? current.named : branch);
		say(message);
	};
	openCherryPick({ thread: current.thread, branch, id, done });
}

/** A dialog has changed the branch: show its end. */
async function changed({ message }) {
	await go(current.thread, current.named);
	say(message);
}

/** Ask for the name of a branch that starts at a commit or a message, or at the newest commit. */
function openBranchDialog(start = null) {
	const what = start?.parts ? "this message is its last one" : `it starts at the commit ${start?.id.slice(0, 7)}`;
	askText({
		id: "branch-dialog",
		title: "A new branch from here",
		note: start && `It has everything up to here: ${what}.`,
		label: "Name",
		value: freeName(),
		save: "Branch",
		run: (name) => newBranch(name, start?.id),
	});
}

/** A name for a branch that no other branch has: `main-2`. */
function freeName() {
	const names = [...byId("branch").options].map(({ value }) => value);
	const stem = current.branch.replace(/-\d+$/, "");
	let number = 2;
	while (names.includes(`${stem}-${number}`)) number += 1;
	return `${stem}-${number}`;
}

async function newBranch(name, at) {
	const { thread, branch } = current;
	const { message } = await post("/api/branch", { thread, branch, name, at });
	await go(thread, name);
	say(message);
}

function registerHistoryCommands() {
	const openGraph = () => {
		drawer("log", true);
		showTab("graph");
		byId("graph-list").focus();
	};
	register({ name: "graph.open", title: "Show the commit graph", shortcut: "g", run: openGraph });
	const version = (name, title, shortcut, by) =>
		register({ name, title, shortcut, when: () => chat.versions[page.row], run: () => stepVersion(by) });
	version("version.previous", "Previous version of this message", "[", -1);
	version("version.next", "Next version of this message", "]", 1);
	const hasOthers = () => page.branches.length > 1;
	register({ name: "diff.open", title: "Compare branches …", shortcut: "d", when: hasOthers, run: () => compare() });
	registerSource({
		group: "Merge into this branch",
		entries: () =>
			page.branches
				.filter((name) => name !== current.branch)
				.map((name) => ({ title: `Merge ${name}`, hint: current.thread, run: () => merge(name) })),
	});
	register({
		name: "commit.newest",
		title: "Back to the newest commit",
		when: () => current.at !== null,
		run: () => readCommit(null),
	});
}

/** Show the log or the graph. */
function showTab(name) {
	for (const each of ["log", "graph"]) {
		byId(`${each}-panel`).hidden = each !== name;
		byId(`tab-${each}`).setAttribute("aria-selected", String(each === name));
		byId(`tab-${each}`).tabIndex = each === name ? 0 : -1;
	}
	document.body.classList.toggle("show-graph", name === "graph");
	if (name === "graph") graph.load(current.thread);
}

/** Open or close a list. On a narrow screen it covers the conversation; a wide one shows both. */
function drawer(side, open) {
	const isOpen = document.body.classList.toggle(`show-${side}`, open);
	byId(`toggle-${side}`).setAttribute("aria-expanded", String(isOpen));
}

/** Make each list one stop of the Tab key; returns that of the messages. */
function addRoving() {
	new Roving(byId("threads"), ".thread, .hit, summary, .more", { preferred: "[aria-current=page]" });
	new Roving(byId("log"), "summary:not(.rows summary)");
	return new Roving(byId("conversation"), "#conversation > [data-id]", {
		scroller: byId("scroll"),
		toEdge: (isEnd) => (isEnd ? chat.rows.toEnd() : chat.rows.toStart()),
	});
}

function addListeners() {
	byId("stop").addEventListener("click", interrupt);
	byId("branch").addEventListener("change", (event) => go(current.thread, event.target.value));
	byId("new-thread").addEventListener("submit", newThread);
	byId("new-branch").addEventListener("click", () => openBranchDialog());
	for (const name of ["log", "graph"]) {
		byId(`tab-${name}`).addEventListener("click", () => showTab(name));
		byId(`tab-${name}`).addEventListener("keydown", ({ key }) => {
			if (key !== "ArrowLeft" && key !== "ArrowRight") return;
			const other = name === "log" ? "graph" : "log";
			showTab(other);
			byId(`tab-${other}`).focus();
		});
	}
	byId("undo").addEventListener("click", () => change("/api/undo", { turn: true }));
	byId("redo").addEventListener("click", () => change("/api/redo", { turn: true }));
	for (const button of document.querySelectorAll("[data-close]")) {
		button.addEventListener("click", () => button.closest("dialog").close());
	}
	for (const side of ["threads", "log"]) {
		byId(`toggle-${side}`).addEventListener("click", () => drawer(side));
		document
			.querySelector(`[data-drawer=${side}]`)
			.addEventListener("click", () => drawer(side, false));
	}
	addEventListener("keydown", (event) => {
		if (event.key !== "Escape" || document.querySelector("dialog[open], #menu")) return; // these close
		for (const side of ["threads", "log"]) drawer(side, false);
	});
	addEventListener("keydown", handleKey);
	addDropTargets({ branches: () => page.branches, pick: pickOnto });
	byId("conversation").addEventListener("focusin", ({ target }) => {
		current.row = target.closest("#conversation > [data-id]")?.dataset.id ?? current.row;
	});
	addEventListener("popstate", () => {
		const { thread, branch, row, at } = readAddress();
		if (thread) open(thread, branch, row, at);
	});
}

start().catch((error) => {
	byId("conversation").replaceChildren(
		el(
			"li.system-message.red",
			el("div", { role: "alert" }, `The page could not start: ${error.message}`),
		),
	);
});

/** For tests and for the console: hand the page a frame as if the server had sent it. */
export { receive };
