// What can be done with a message besides reading it: branch from it, edit it on a new branch, ask
// for another answer. Each opens from the menu of the row.

import { button, copy, count, el } from "./dom.js";
import { get, post } from "./api.js";
import { askText, field, openDialog, openMenu } from "./dialog.js";

const MOST_BRANCHES = 8; // in the menu of a row
const EDITABLE = ["user", "assistant", "system", "developer"];

export class RowActions {
	/** `page`: {thread, branch, go, change, say, isPast}; `retry()` asks for an answer; `branchAt(row)`
	 *  asks for the name of a branch; `pick(id, branch)` applies a message to a branch; `more(row)` are
	 *  further entries of the menu. */
	constructor({ page, retry, branchAt, pick, more }) {
		Object.assign(this, { page, retry, branchAt, pick, more });
	}

	/** The menu button of a row. */
	button(row) {
		const open = ({ currentTarget }) => openMenu(currentTarget, this.items(row));
		return button("⋯", open, {
			"data-act": "menu",
			"aria-label": "More for this message",
			"aria-haspopup": "menu",
			"aria-expanded": "false",
			title: "Branch, edit, regenerate …",
		});
	}

	items(row) {
		const items = [{ label: "Branch from here …", run: () => this.branchAt(row) }];
		if (this.page.isPast) return items;
		const hasText = row.parts.some(({ type }) => ["text", "plain", "injected"].includes(type));
		if (EDITABLE.includes(row.role) && hasText) items.push({ label: "Edit and branch …", run: () => this.edit(row) });
		if (row.role === "assistant" && row.kind !== "summary") items.push({ label: "Regenerate", run: () => this.askAgain(row, true) });
		if (row.role === "user" && row.kind !== "summary") items.push({ label: "Ask again", run: () => this.askAgain(row, false) });
		if (row.kind !== "summary")
			for (const name of this.page.branches.filter((each) => each !== this.page.branch).slice(0, MOST_BRANCHES))
				items.push({ label: `Cherry-pick onto ${name} …`, run: () => this.pick(row.id, name) });
		if (hasText) items.push({ label: "Copy text", run: () => this.copy(row.id) });
		if (row.sent) items.push({ label: "What was sent …", run: () => this.showSent(row.id) });
		items.push({ label: "Add a note …", run: () => this.note(row.id) });
		const isImportant = row.priority === "important";
		if (isImportant || row.priority === "normal")
			items.push({
				label: isImportant ? "Not important any more" : "Mark as important",
				run: () => this.page.annotate(row.id, isImportant ? "normal" : "important"),
			});
		return [...items, ...this.more(row)];
	}

	/** Read something about a message; null if that fails, which is shown. */
	read(path, id) {
		const { thread, branch, say } = this.page;
		return get(path, { thread, branch, id }).catch((error) => say(error.message, true) ?? null);
	}

	async copy(id) {
		const message = await this.read("/api/message", id);
		if (message) await this.write(message.text);
	}

	write(text) {
		const { say } = this.page;
		return copy(text).then(() => say("Copied."), (error) => say(error.message, true));
	}

	/** The request that an answer was made from. */
	async showSent(id) {
		const sent = await this.read("/api/sent", id);
		if (!sent) return;
		const cut = sent.length > sent.text.length ? `, the first ${count(sent.text.length)} characters` : "";
		const text = el("pre.sent", { tabindex: 0 }, sent.text);
		openDialog({
			id: "sent-dialog",
			title: "What was sent",
			wide: true,
			cancel: "Close",
			body: [el("p.muted", `${count(sent.bytes)} bytes${cut}`), text],
			buttons: [{ label: "Copy", run: () => this.write(sent.text).then(() => false) }],
		});
	}

	/** Write a note on a message or a commit; no model sees it. */
	note(id) {
		const run = async (text) => (await this.page.change("/api/note", { id, text })) !== null;
		const label = "For people only: no model sees it";
		askText({ id: "note-dialog", title: "Add a note", label, rows: 4, run });
	}

	/** Ask for another answer, on a new branch; the old answer stays on this one. */
	async askAgain(row, before) {
		const { thread, branch } = this.page;
		try {
			const answer = await post("/api/branch", { thread, branch, at: row.id, before });
			await this.page.go(thread, answer.branch);
			this.page.say(answer.message);
			this.retry();
		} catch (error) {
			this.page.say(error.message, true);
		}
	}

	/** Edit a message here, or on a new branch that ends with it. */
	async edit(row) {
		const message = await this.read("/api/message", row.id);
		if (!message) return;
		const input = el("textarea", { id: "edit-text", rows: 10, "aria-label": "Text of the message" });
		input.value = message.text;
		const name = el("input", { id: "edit-branch", maxlength: 120, autocomplete: "off", placeholder: "chosen for you" });
		const ask = el("input", { id: "edit-ask", type: "checkbox", checked: row.role === "user" });
		const note = "The new branch ends with the edited message. The message here stays as it is.";
		openDialog({
			id: "edit-dialog",
			title: "Edit this message",
			body: [
				input,
				field("Name of the branch", name),
				row.role === "user" ? field("Ask for an answer", ask) : null,
				el("p.muted", note),
			].filter(Boolean),
			buttons: [
				{ label: "Edit here", kind: "quiet", id: "edit-here", run: () => this.editHere(row, input.value) },
				{ label: "Edit on a new branch", id: "edit-commit", run: () => this.editOnBranch(row, input.value, name.value.trim(), row.role === "user" && ask.checked) },
			],
		});
		input.focus();
	}

	async editHere(row, text) {
		return (await this.page.change("/api/edit", { id: row.id, text })) !== null;
	}

	async editOnBranch(row, text, name, asks) {
		const { thread, branch } = this.page;
		const answer = await post("/api/branch", { thread, branch, at: row.id, text, name: name || null });
		await this.page.go(thread, answer.branch);
		this.page.say(answer.message);
		if (asks) this.retry();
	}
}
