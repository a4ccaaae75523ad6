// The versions of messages on other branches: "‹ 2/3 ›" opens the next one.

import { get } from "./api.js";
import { register } from "./commands.js";
import { watch } from "./signals.js";
import { branches, isOpen, state } from "./state.js";

export class Versions {
	constructor({ chat, reader }) {
		Object.assign(this, { chat, reader });
		watch(() => state.updates, () => this.load());
		const command = (name, title, shortcut, by) =>
			register({ name, title, shortcut, when: () => chat.versions[state.row], run: () => this.step(by) });
		command("version.previous", "Previous version of this message", "[", -1);
		command("version.next", "Next version of this message", "]", 1);
	}

	async load() {
		const { thread, branch, at } = state;
		const hasOthers = branches().length > 1 && !at;
		const answer = hasOthers ? await get("/api/versions", { thread, branch }).catch(() => null) : null;
		if (isOpen(thread, branch)) this.chat.setVersions(answer?.versions ?? {});
	}

	/** Open another version of a message, on its branch; the arrow keeps the focus. */
	async open({ branch, row }, arrow) {
		await this.reader.go(state.thread, branch, row);
		await this.load();
		const buttons = [...(this.chat.rows.find(row)?.querySelectorAll(".versions button:enabled") ?? [])];
		(buttons.find(({ dataset }) => dataset.act === arrow) ?? buttons[0])?.focus({ preventScroll: true });
	}

	/** Another version of the message that has the focus. */
	step(by) {
		const versions = this.chat.versions[state.row] ?? [];
		const other = versions[versions.findIndex((each) => each.current) + by];
		return other && this.open(other, by > 0 ? "next" : "previous");
	}
}
