// Files that go with the next message: chosen with the button, dropped on the page, or pasted.
//
// A file is uploaded at once, and the server answers with its hash. The message names it by this
// hash. The server decides which types it takes; sizes are checked here too, before megabytes are
// sent for nothing.

import { button, byId, el, refill } from "./dom.js";
import { upload } from "./api.js";
import { draftOf, saveDraft } from "./drafts.js";
import { state } from "./state.js";
import { say } from "./toast.js";

const MEGABYTE = 1024 * 1024;
const FILE_LIMIT = 20 * MEGABYTE;
const FILES = 10;

export class Attachments {
	constructor() {
		this.list = byId("attachments");
		const input = byId("attach-input");
		byId("attach").addEventListener("click", () => input.click());
		input.addEventListener("change", () => {
			this.add(input.files);
			input.value = ""; // the same file can be chosen again
		});
		byId("words").addEventListener("paste", (event) => this.paste(event));
		this.acceptDrops(document.querySelector("main"));
	}

	/** Files that are dropped anywhere on the conversation. */
	acceptDrops(area) {
		const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
		area.addEventListener("dragover", (event) => {
			if (!hasFiles(event)) return;
			event.preventDefault();
			area.classList.add("dropping");
		});
		area.addEventListener("dragleave", (event) => {
			if (!area.contains(event.relatedTarget)) area.classList.remove("dropping");
		});
		area.addEventListener("drop", (event) => {
			area.classList.remove("dropping");
			if (!hasFiles(event)) return;
			event.preventDefault();
			this.add(event.dataTransfer.files);
		});
	}

	/** A pasted image or file is attached; pasted text goes into the box as usual. */
	paste(event) {
		const files = event.clipboardData?.files ?? [];
		if (!files.length) return;
		event.preventDefault();
		this.add(files);
	}

	async add(files) {
		for (const file of [...files]) {
			if (this.files.length >= FILES) {
				say(`A message takes at most ${FILES} files.`, true);
				return;
			}
			if (file.size > FILE_LIMIT) {
				const size = fileSize(file.size);
				say(`${file.name} is too large: ${size}. The limit is ${fileSize(FILE_LIMIT)}.`, true);
				continue;
			}
			await this.send(file);
		}
	}

	async send(file) {
		const { thread } = state;
		const entry = { name: file.name || "pasted file", size: file.size };
		this.change(thread, (files) => [...files, entry]);
		try {
			const sent = await upload("/api/upload", { name: entry.name }, file);
			this.change(thread, (files) => files.map((each) => (each === entry ? { ...entry, upload: sent } : each)));
		} catch (error) {
			this.change(thread, (files) => files.filter((each) => each !== entry));
			say(error.message, true);
		}
	}

	/** The files of the open thread: {name, size, upload}; without `upload`, it is on its way. */
	get files() {
		return state.thread ? draftOf(state.thread).files : [];
	}

	change(thread, edit) {
		const draft = draftOf(thread);
		draft.files = edit(draft.files);
		saveDraft(thread);
		if (thread === state.thread) this.show();
	}

	get isUploading() {
		return this.files.some((entry) => !entry.upload);
	}

	/** The hashes of the files, for the message. */
	get ids() {
		return this.files.filter((entry) => entry.upload).map((entry) => entry.upload.id);
	}

	remove(entry) {
		this.change(state.thread, (files) => files.filter((each) => each !== entry));
		byId("words").focus();
	}

	show() {
		refill(this.list, ...this.files.map((entry) => this.chip(entry)));
	}

	chip(entry) {
		const { name, size } = entry;
		const image = entry.upload?.shown
			? el("img", { src: `/api/upload?id=${entry.upload.id}`, alt: "" })
			: el("span.icon", { "aria-hidden": "true" }, "▤");
		return el(
			"li.chip",
			image,
			el("span.chip-name", { title: name }, name),
			el("span.muted", entry.upload ? fileSize(size) : "uploading …"),
			button("×", () => this.remove(entry), { "aria-label": `Remove ${name}` }),
		);
	}
}

/** "1.4 MB" */
export function fileSize(bytes) {
	if (bytes >= MEGABYTE) return `${(bytes / MEGABYTE).toFixed(1)} MB`;
	return bytes >= 1024 ? `${Math.round(bytes / 1024)} KB` : `${bytes} B`;
}

/** Media of a message: an image, or a link to a file. Nothing is fetched from other servers. */
export function mediaNode(part, place) {
	const { name, media_type, size, source, address, shown } = part;
	const facts = [media_type, size === null ? null : fileSize(size)].filter(Boolean).join(", ");
	if (!address?.row && !address?.call) {
		const label = source ? `${name} at ${source}, not loaded` : `${name} (${facts})`;
		return el("p.note", `[${label}]`);
	}
	const fields = Object.entries({ ...place, ...address }).filter(([, value]) => value != null);
	const url = `/api/media?${new URLSearchParams(fields)}`;
	if (!shown) return el("p.media", el("a", { href: url, download: name }, `${name} (${facts})`));
	const image = el("img", { src: url, alt: `${name}, ${facts}`, loading: "lazy" });
	return el("a.media", { href: url, target: "_blank", rel: "noopener" }, image);
}
