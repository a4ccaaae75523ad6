// Renaming, deleting and restoring a thread. A deleted thread can be restored until `weft gc`.

import { byId, el } from "./dom.js";
import { post } from "./api.js";
import { askText, openDialog } from "./dialog.js";
import { state } from "./state.js";
import { say } from "./toast.js";

const UNDO_MILLISECONDS = 15_000; // how long the Undo button stays after a deletion

export class Manage {
	/** `onrenamed(old, name)`, `ondeleted(name)` and `onrestored(name)` update the page. */
	constructor({ onrenamed, ondeleted, onrestored }) {
		Object.assign(this, { onrenamed, ondeleted, onrestored });
		byId("rename").addEventListener("click", () => this.openRename(state.thread));
		byId("delete").addEventListener("click", () => this.openDelete(state.thread));
	}

	/** A refused name leaves the dialog open, with the reason in it. */
	openRename(thread) {
		const rename = async (name) => {
			const answer = await post("/api/rename", { thread, name });
			await this.onrenamed(thread, answer.thread);
			say(answer.message);
		};
		const title = "Rename this thread";
		askText({ id: "rename-dialog", title, label: "Name", value: thread, save: "Rename", run: rename });
	}

	openDelete(thread) {
		const facts = `“${thread}”, its branches and the threads under it (subagents) are deleted.`;
		const restore = "You can restore it under “Deleted threads” until `weft gc` removes it for good.";
		openDialog({
			id: "delete-dialog",
			title: "Delete this thread?",
			body: [el("p", facts), el("p.muted", restore)],
			buttons: [{ label: "Delete", kind: "danger", id: "delete-confirm", run: () => this.delete(thread) }],
		});
	}

	async delete(thread) {
		const { message } = await post("/api/delete", { thread });
		await this.ondeleted(thread);
		const undo = { label: "Undo", run: () => this.restore(thread), shows: UNDO_MILLISECONDS };
		say(message, false, undo);
	}

	async restore(name) {
		try {
			const { thread, message } = await post("/api/undelete", { thread: name });
			await this.onrestored(thread);
			say(message);
		} catch (error) {
			say(error.message, true);
		}
	}
}
