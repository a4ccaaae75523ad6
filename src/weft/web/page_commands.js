// The commands of the page itself: threads, branches, the message box, and what its buttons do.

import { byId } from "./dom.js";
import { get, withQuery } from "./api.js";
import { register, registerSource } from "./commands.js";
import { state } from "./state.js";

const NO_WORK = "weft.no-work"; // the storage key of whether thinking and tools are hidden
const THREADS = 200; // threads that the palette offers

/** A command that clicks a button; it is available while the button is. */
function button(name, title, id, shortcut = null) {
	const isThere = () => !byId(id).disabled && !byId(id).hidden;
	register({ name, title, shortcut, when: isThere, run: () => byId(id).click() });
}

/** `rows` moves the focus between messages. */
export function registerPageCommands({ rows }) {
	const focus = (id) => {
		byId(id).focus();
		byId(id).select?.();
	};
	register({ name: "message.write", title: "Write a message", shortcut: "m", run: () => focus("words") });
	register({
		name: "search.open",
		title: "Search threads and messages",
		shortcut: "/",
		run: () => {
			state.threadsOpen = true;
			focus("search");
		},
	});
	register({
		name: "thread.new",
		title: "New thread …",
		shortcut: "n",
		run: () => {
			state.threadsOpen = true;
			focus("new-name");
		},
	});
	register({ name: "model.choose", title: "Choose a model …", run: () => focus("model") });
	register({ name: "message.next", title: "Next message", shortcut: "j", run: () => rows.step(1) });
	register({ name: "message.previous", title: "Previous message", shortcut: "k", run: () => rows.step(-1) });
	register({ name: "message.first", title: "First message", run: () => rows.edge(false) });
	register({ name: "message.last", title: "Last message", run: () => rows.edge(true) });
	const annotate = (name, title, priority, shortcut) =>
		register({
			name,
			title,
			shortcut,
			when: (page) => page.row && !page.isRunning,
			run: (page) => page.annotate(page.row, priority),
		});
	annotate("message.pin", "Pin this message", "pinned", "p");
	annotate("message.skip", "Skip this message", "skip", "x");
	annotate("message.restore", "Unpin this message, or include it again", "normal", null);
	const work = (isHidden) => document.body.classList.toggle("no-work", isHidden);
	work(localStorage.getItem(NO_WORK) === "yes");
	register({
		name: "view.work",
		title: "Show or hide thinking and tools",
		shortcut: "t",
		run: ({ say }) => {
			const isHidden = work();
			localStorage.setItem(NO_WORK, isHidden ? "yes" : "");
			say(isHidden ? "Thinking and tools are hidden. T shows them." : "Thinking and tools are shown.");
		},
	});
	button("run.stop", "Stop the answer", "stop", "Mod+.");
	button("thread.undo", "Undo the last change", "undo", "u");
	button("thread.redo", "Redo", "redo", "Shift+U");
	button("thread.compact", "Compact this thread …", "compact", "Shift+C");
	button("thread.rename", "Rename this thread …", "rename");
	for (const [format, label] of [["html", "an HTML page"], ["markdown", "Markdown"]])
		register({
			name: `thread.${format}`,
			title: `Download this thread as ${label}`,
			when: (page) => page.head,
			run: ({ thread, branch }) => location.assign(withQuery("/api/export", { thread, branch, format })),
		});
	button("thread.delete", "Delete this thread …", "delete");
	button("branch.new", "New branch from here …", "new-branch", "b");
	button("log.toggle", "Show or hide the log", "toggle-log");
	registerSource({ group: "Threads", entries: threadEntries });
	registerSource({ group: "Branches of this thread", entries: branchEntries });
}

/** Threads by title, and those whose messages contain the query. */
async function threadEntries(query) {
	const lists = [get("/api/threads", { limit: THREADS })];
	if (query.length > 1) lists.push(get("/api/threads", { limit: THREADS, q: query }));
	const [all, found] = (await Promise.all(lists)).map(({ threads }) => threads.map(threadEntry));
	const hits = new Map((found ?? []).filter(({ isFound }) => isFound).map((entry) => [entry.name, entry]));
	const titles = all.filter(({ name }) => !hits.has(name));
	return [...titles, ...hits.values()];
}

function threadEntry({ name, title, hits }) {
	return {
		name,
		title: title ?? name,
		hint: hits?.length ? `${kindOf(hits[0])}${hits[0].text}` : title ? name : "",
		isFound: Boolean(hits), // the server matched words that title and hint may lack
		run: (page) => (hits?.length ? page.openHit(name, hits[0]) : page.go(name)),
	};
}

const kindOf = ({ kind }) => (kind === "message" ? "" : `${kind}: `);

function branchEntries(_query, { thread, branch, branches }) {
	return branches
		.filter((name) => name !== branch)
		.map((name) => ({ title: name, hint: thread, run: (page) => page.go(thread, name) }));
}
