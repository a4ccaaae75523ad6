// The page: one thread, its history, and a socket that pushes what happens in it.
//
// This module makes the parts and connects them. What is shown is in `state.js`.

import { byId, el } from "./dom.js";
import { get } from "./api.js";
import { Branches } from "./branches.js";
import { Chat } from "./chat.js";
import { handleKey, register, setPage } from "./commands.js";
import { Compaction } from "./compaction.js";
import { Composer } from "./composer.js";
import { Exchanges } from "./exchanges.js";
import { first, readAddress } from "./first_read.js";
import { Frames } from "./frames.js";
import { showGauge } from "./gauge.js";
import { Graph } from "./graph.js";
import { showHeader } from "./header.js";
import { History } from "./history.js";
import { Live } from "./live.js";
import { Manage } from "./manage.js";
import { addDropTargets } from "./merge.js";
import { registerPageCommands } from "./page_commands.js";
import { Palette } from "./palette.js";
import { Roving, watchScrollables } from "./roving.js";
import { RowActions } from "./row_actions.js";
import { showSidePanels } from "./side_panel.js";
import { branches, place, state } from "./state.js";
import { Threads } from "./threads.js";
import { ThreadReader, address, firstThread } from "./thread_reader.js";
import { say } from "./toast.js";
import { showTravel } from "./travel.js";
import { UsageDialog } from "./usage.js";
import { Versions } from "./versions.js";

let frames;

/** For tests and for the console: hand the page a frame as if the server had sent it. */
export const receive = (frame) => frames.receive(frame);

async function start() {
	const opened = readAddress();
	const table = await first.table;

	const chat = new Chat({
		table,
		actions: {
			pin: (id) => page.annotate(id, "pinned"),
			skip: (id) => page.annotate(id, "skip"),
			restore: (id) => page.annotate(id, "normal"),
			openCommit: (id) => history.open(id),
			openVersion: (version, arrow) => versions.open(version, arrow),
			openRow: (id) => reader.go(state.thread, state.named, id),
			permalink: (row) => address({ thread: state.thread, branch: state.named, row }),
			retry: () => composer.retry(),
			menu: (row) => rowActions.button(row),
		},
		load: (from, count) => get("/api/rows", { ...place(), from, count }),
		address: place,
	});
	const send = (frame) => frames.send(frame);
	const live = new Live({
		chat,
		table,
		confirm: (compact) => send({ type: "confirm", compact }),
		answer: (id, answer) => send({ type: "answer", id, answer }),
	});
	const exchanges = new Exchanges({ append: (node) => chat.append(node), table });
	const threads = new Threads({
		onpick: (name) => reader.go(name),
		onhit: (thread, hit) => reader.openHit(thread, hit),
		onrestore: (name) => manage.restore(name),
	});
	const composer = new Composer({ send });
	frames = new Frames({ chat, live, exchanges, threads, composer });
	const reader = new ThreadReader({ chat, live, exchanges, watch: () => frames.watch() });
	const page = makePage(chat, reader);

	const manage = new Manage({
		onrenamed: (old, name) => {
			composer.rename(old, name);
			return reader.go(name, state.named);
		},
		ondeleted: async (deleted) => {
			const list = await threads.load();
			await reader.go(list.find(({ name }) => name !== deleted)?.name ?? "default");
		},
		onrestored: (name) => reader.go(name),
	});
	const history = new History({ read: (id) => reader.readCommit(id), revert: (id) => reader.change("/api/revert", { id }) });
	const graph = new Graph({ read: (id) => reader.readCommit(id), commands: (commit) => lines.commandsFor(commit) });
	const lines = new Branches({ reader, graph: () => graph, note: (id) => rowActions.note(id) });
	const versions = new Versions({ chat, reader });
	const compaction = new Compaction({
		page,
		position: (id) => chat.rows.position(id),
		mark: (id) => chat.markRange(id),
		done: () => chat.toCompaction(),
		refresh: () => reader.refreshChanged(),
	});
	const rowActions = new RowActions({
		page,
		retry: () => composer.retry(),
		branchAt: (row) => lines.openDialog(row),
		pick: (id, branch) => lines.pick(id, branch),
		more: (row) => compaction.items(row),
	});

	showHeader({ pick: (branch) => reader.go(state.thread, branch) });
	showGauge();
	showSidePanels();
	showTravel({ back: () => reader.readCommit(null), branch: (commit) => lines.openDialog(commit) });
	addDropTargets({ branches, pick: (id, branch) => lines.pick(id, branch) });
	new UsageDialog({ open: (name) => reader.go(name) });
	setPage(page);
	registerPageCommands({ rows: addRoving(chat) });
	register({ name: "graph.open", title: "Show the commit graph", shortcut: "g", run: openGraph });
	new Palette();
	addListeners(reader);
	frames.connect(reader);

	const models = composer.loadModels(); // an upstream may take seconds
	const list = threads.load(); // the messages do not wait for it
	const { thread, branch, row, at } = opened;
	await reader.open(thread ?? firstThread(await list), branch, row, at);
	await Promise.all([models, list]);
	await composer.refresh();
}

/** What commands use. */
function makePage(chat, reader) {
	return {
		get thread() {
			return state.thread;
		},
		get branch() {
			return state.branch;
		},
		get branches() {
			return branches();
		},
		get head() {
			return state.head;
		},
		/** The id of the message that has, or last had, the focus; null if it is not shown any more. */
		get row() {
			return state.row && chat.rows.find(state.row) ? state.row : null;
		},
		get isRunning() {
			return state.run !== null;
		},
		/** Whether an earlier commit is read. */
		get isPast() {
			return state.at !== null;
		},
		go: (...where) => reader.go(...where),
		openHit: (thread, hit) => reader.openHit(thread, hit),
		change: (path, body) => reader.change(path, body),
		say,
		annotate: (id, priority) =>
			reader.change("/api/annotate", { id, priority }).then(() => chat.rows.find(id)?.focus({ preventScroll: true })),
	};
}

function openGraph() {
	Object.assign(state, { logOpen: true, tab: "graph" });
	byId("graph-list").focus();
}

/** Make each list one stop of the Tab key; returns that of the messages. */
function addRoving(chat) {
	new Roving(byId("threads"), ".thread, .hit, summary, .more", { preferred: "[aria-current=page]" });
	new Roving(byId("log"), "summary:not(.rows summary), .read-commit, .more");
	return new Roving(byId("conversation"), "#conversation > [data-id]", {
		scroller: byId("scroll"),
		toEdge: (isEnd) => (isEnd ? chat.rows.toEnd() : chat.rows.toStart()),
	});
}

function addListeners(reader) {
	watchScrollables(byId("conversation"), "pre, .prose table");
	byId("new-thread").addEventListener("submit", async (event) => {
		event.preventDefault();
		const name = byId("new-name").value.trim();
		if (!name) return;
		byId("new-name").value = "";
		await reader.go(name);
		byId("words").focus();
	});
	byId("undo").addEventListener("click", () => reader.change("/api/undo", { turn: true }));
	byId("redo").addEventListener("click", () => reader.change("/api/redo", { turn: true }));
	for (const button of document.querySelectorAll("[data-close]"))
		button.addEventListener("click", () => button.closest("dialog").close());
	addEventListener("keydown", handleKey);
	byId("conversation").addEventListener("focusin", ({ target }) => {
		state.row = target.closest("#conversation > [data-id]")?.dataset.id ?? state.row;
	});
	addEventListener("popstate", () => {
		const { thread, branch, row, at } = readAddress();
		if (thread) reader.open(thread, branch, row, at);
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
