// Renaming, deleting and restoring a thread. A deleted thread can be restored until `weft gc`.

import { byId } from "./dom.js";
import { post } from "./api.js";

const UNDO_MILLISECONDS = 15_000; // how long the Undo button stays after a deletion

export class Manage {
	/**
	 * `current()` is the name of the open thread. `onrenamed(old, name)`, `ondeleted(name)` and
	 * `onrestored(name)` update the page; `say(text, isError, action)` shows one line.
	 */
	constructor({ current, say, onrenamed, ondeleted, onrestored }) {
		Object.assign(this, { current, say, onrenamed, ondeleted, onrestored });
		byId("rename").addEventListener("click", () => this.openRename());
		byId("rename-form").addEventListener("submit", (event) => this.rename(event));
		byId("delete").addEventListener("click", () => this.openDelete());
		byId("delete-confirm").addEventListener("click", () => this.delete());
	}

	openRename() {
		this.thread = this.current();
		byId("rename-problem").textContent = "";
		byId("rename-name").value = this.thread;
		byId("rename-dialog").showModal();
		byId("rename-name").select();
	}

	/** A refused name leaves the dialog open, with the reason in it. */
	async rename(event) {
		event.preventDefault();
		const name = byId("rename-name").value.trim();
		if (!name) return;
		try {
			const { thread, message } = await post("/api/rename", { thread: this.thread, name });
			byId("rename-dialog").close();
			await this.onrenamed(this.thread, thread);
			this.say(message);
		} catch (error) {
			byId("rename-problem").textContent = error.message;
		}
	}

	openDelete() {
		this.thread = this.current();
		byId("delete-facts").textContent =
			`“${this.thread}”, its branches and the threads under it (subagents) are deleted.`;
		byId("delete-dialog").showModal();
	}

	async delete() {
		byId("delete-dialog").close();
		const { thread } = this;
		try {
			const { message } = await post("/api/delete", { thread });
			await this.ondeleted(thread);
			const undo = { label: "Undo", run: () => this.restore(thread), shows: UNDO_MILLISECONDS };
			this.say(message, false, undo);
		} catch (error) {
			this.say(error.message, true);
		}
	}

	async restore(name) {
		try {
			const { thread, message } = await post("/api/undelete", { thread: name });
			await this.onrestored(thread);
			this.say(message);
		} catch (error) {
			this.say(error.message, true);
		}
	}
}
