// Opening a thread, and reading what has changed in it.
//
// The page is told about every change, and reads only what has changed. The thread and branch of a
// tab are in its address, so reloads and second tabs work.

import { get, post } from "./api.js";
import { FIRST_ROWS, first, rowsAddress } from "./first_read.js";
import { batch } from "./signals.js";
import { place, state } from "./state.js";
import { say } from "./toast.js";

const UPDATE_MILLISECONDS = 400; // how long log and gauge wait for further changes
const LAST_THREAD = "weft.thread"; // the storage key of the thread that was open last

/** The address of a thread, of a message or a commit: `#thread=name&branch=name&row=id&at=id`. */
export function address(fields) {
	const entries = Object.entries(fields).filter(([, value]) => value);
	return `#${new URLSearchParams(entries)}`;
}

/** The thread to open if the address names none: the last one open, the sample, or the newest. */
export function firstThread(list) {
	const last = localStorage.getItem(LAST_THREAD);
	const thread = list.find(({ name }) => name === last) ?? list.find(({ sample }) => sample);
	return (thread ?? list[0])?.name ?? "default";
}

export class ThreadReader {
	/** `watch()` asks for the frames of the open thread. */
	constructor({ chat, live, exchanges, watch }) {
		Object.assign(this, { chat, live, exchanges, watch });
		this.opening = 0; // how many threads are being opened
		this.reads = 0; // if reads overlap, only the newest one is shown
	}

	/** Open a thread and note it in the address. */
	go(thread, branch = null, row = null, at = null, commit = null) {
		window.history.pushState(null, "", address({ thread, branch, row, at }));
		state.threadsOpen = false;
		return this.open(thread, branch, row, at, commit);
	}

	/** Open what a search found: a message where it is, or the thread as of the commit of a tag. */
	openHit(thread, { kind, id, commit }) {
		return kind === "tag" ? this.go(thread, null, null, commit) : this.go(thread, null, id, null, commit);
	}

	/** Read the thread as of a commit; null: the newest. */
	readCommit(id) {
		state.logOpen = false; // on a narrow screen it covers the conversation
		return this.go(state.thread, state.named, null, id);
	}

	async open(thread, branch = null, row = null, at = null, commit = null) {
		batch(() => {
			const isOther = thread !== state.thread;
			Object.assign(state, { thread, branch, named: branch, head: null, at });
			Object.assign(state, { run: null, queue: [], ready: false }); // until the server says otherwise
			if (isOther) Object.assign(state, { composer: null, view: null, row: null });
		});
		this.exchanges.clear();
		this.chat.versions = {};
		localStorage.setItem(LAST_THREAD, thread);
		this.live.reset();
		this.chat.clearTail(); // what streams belongs to the thread or branch that was open
		this.opening += 1;
		await this.reload({ row, commit }).finally(() => (this.opening -= 1));
		this.watch();
	}

	async readRows(query) {
		this.reads += 1;
		const number = this.reads;
		const address = rowsAddress({ ...place(), ...query });
		const view = await (first.take(address) ?? get(address));
		return number === this.reads ? view : null;
	}

	/** Read the thread and show it from its end, or around a row; up to the commit `until`. If the
	 *  branch does not have the row, the thread is shown as of `commit`. */
	async reload({ row = null, until = state.at, commit = null } = {}) {
		const { chat } = this;
		try {
			const view = await this.readRows({ around: row, until, count: FIRST_ROWS, isFirst: true });
			if (!view) return;
			this.live.reset();
			chat.show(view);
			this.shown(view);
			if (!row || !chat.reveal(row)) await chat.toEnd();
			if (view.part) await this.refresh(); // the whole thread
		} catch (error) {
			const folded = row && !until ? await beforeCompaction(row) : null;
			const at = folded ?? (until ? null : commit);
			if (at) {
				const { thread, named } = state;
				if (row === at) row = null; // the note of a commit without a message
				window.history.replaceState(null, "", address({ thread, branch: named, row, at }));
				state.at = at;
				await this.reload({ row, until: at });
				if (folded) say("This message was compacted. This is the thread as it was before.");
			} else if (row) {
				say(error.message, true);
				await this.reload({ until });
			} else {
				chat.clear();
				chat.fail(error.message);
			}
		}
	}

	/** Read what has changed and patch it in. `clear` removes what streamed: it is in the rows now. */
	async refresh({ until = null, clear = () => {} } = {}) {
		const { chat } = this;
		if (state.at) {
			state.updates += 1; // an earlier commit never changes, but what is beside it does
			return;
		}
		if (!state.head || state.view?.part) {
			const view = await this.readRows({ until, count: FIRST_ROWS }).catch(report);
			if (view) this.replaceAll(view, clear, chat.anchor()); // the reader may have scrolled already
			return;
		}
		const view = await this.readRows({ since: state.head, until }).catch(report);
		if (!view) return;
		const wasAtEnd = chat.atEnd();
		if (view.appended && view.branch === state.branch && chat.update(view, clear)) {
			this.shown(view);
			if (wasAtEnd) await chat.toEnd();
			return;
		}
		const anchor = wasAtEnd ? null : chat.anchor();
		const around = anchor && (await this.readRows({ around: anchor.id, until }).catch(() => null));
		this.replaceAll(around || (anchor ? await this.readRows({ until }).catch(report) : view), clear, anchor);
	}

	/** Show a thread whose earlier rows have changed; rows that stay keep their nodes. */
	replaceAll(view, clear, anchor = null) {
		if (!view) return;
		const { chat } = this;
		const wasAtEnd = chat.atEnd();
		clear();
		chat.replace(view);
		this.shown(view);
		if (wasAtEnd || !chat.restore(anchor)) chat.toEnd();
	}

	/** The rows are shown; what belongs to them follows, at once if the thread is another one. */
	shown({ rows, updated, ...view }) {
		batch(() => Object.assign(state, { branch: view.branch, head: view.head, view }));
		clearTimeout(this.timer);
		const wait = this.lastShown === view.name ? UPDATE_MILLISECONDS : 0;
		this.timer = setTimeout(() => (state.updates += 1), wait);
		this.lastShown = view.name;
	}

	/** The thread has changed, by somebody else or by this page. */
	async refreshChanged() {
		if (this.opening) return; // the answer to `watch` makes the page read again
		await this.refresh();
		if (!state.run) this.live.removeFinished();
	}

	/** Make a change, then show the thread again. */
	async change(path, body = {}) {
		try {
			const { thread, branch } = state;
			const answer = await post(path, { thread, branch, ...body });
			await this.refresh();
			say(answer.message);
			return answer;
		} catch (error) {
			say(error.message, true);
			return null;
		}
	}
}

/** The commit at which a compacted message can be read; null if it was removed in another way. */
async function beforeCompaction(row) {
	const { thread, named } = state;
	const answer = await get("/api/locate", { thread, branch: named, row }).catch(() => null);
	return answer?.at ?? null;
}

function report(error) {
	say(error.message, true);
	return null;
}
