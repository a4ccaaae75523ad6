// What was written and attached in each thread, and not sent yet. It survives a reload.

const KEY = "weft.draft:"; // + the thread's name

const drafts = new Map();

/** The draft of a thread, to read and to change: {text, files}. */
export function draftOf(thread) {
	if (!drafts.has(thread)) drafts.set(thread, read(thread));
	return drafts.get(thread);
}

function read(thread) {
	try {
		const { text, files } = JSON.parse(localStorage.getItem(KEY + thread));
		return { text: String(text), files: [...files] };
	} catch {
		return { text: "", files: [] };
	}
}

/** Keep a draft that was changed. */
export function saveDraft(thread) {
	const { text, files } = draftOf(thread);
	const uploaded = files.filter(({ upload }) => upload);
	if (!text && !uploaded.length) {
		localStorage.removeItem(KEY + thread);
		return;
	}
	try {
		localStorage.setItem(KEY + thread, JSON.stringify({ text, files: uploaded }));
	} catch {
		// The browser's storage is full: the draft lasts as long as this tab.
	}
}

/** A thread has another name. */
export function moveDraft(old, name) {
	drafts.set(name, draftOf(old));
	drafts.set(old, { text: "", files: [] });
	saveDraft(name);
	saveDraft(old);
}

/** Another tab has changed this key of the storage; returns the thread whose draft it is. */
export function forgetDraft(key) {
	if (!key?.startsWith(KEY)) return null;
	const thread = key.slice(KEY.length);
	drafts.delete(thread);
	return thread;
}
