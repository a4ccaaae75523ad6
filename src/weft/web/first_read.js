// The first reads of the page. They are sent before the rest of the page has loaded: this module
// imports nothing but `api.js`, and runs as soon as both are there.

import { get, withQuery } from "./api.js";

export const FIRST_ROWS = 40; // how many rows are read when a thread is opened

/** The thread, branch, message and commit that the address of this tab names. */
export function readAddress() {
	const params = new URLSearchParams(location.hash.slice(1));
	const [thread, branch, row, at] = ["thread", "branch", "row", "at"].map((name) => params.get(name));
	return { thread, branch, row, at };
}

/** The address of rows; the end of a thread may be sent before the rest is read (`part`). */
export function rowsAddress({ thread, branch, until, around, since, count, isFirst }) {
	const quick = isFirst && !until && !around ? 1 : null;
	return withQuery("/api/rows", { thread, branch, until, around, since, count, quick });
}

class FirstReads {
	constructor({ thread, branch, row, at }) {
		this.table = get("/api/system-table");
		if (!thread) return;
		this.address = rowsAddress({ thread, branch, until: at, around: row, count: FIRST_ROWS, isFirst: true });
		this.rows = get(this.address);
		this.rows.catch(() => {}); // the caller of `take` reports the error
	}

	/** The rows at this address, if they were asked for; once, because they change. */
	take(address) {
		const rows = address === this.address ? this.rows : null;
		this.address = null;
		return rows;
	}
}

export const first = new FirstReads(readAddress());
