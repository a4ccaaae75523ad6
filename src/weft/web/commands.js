// Commands: what can be done from the command palette (`palette.js`) or with a key.
//
//     register({
//       name: "branch.new",           // unique, `area.verb`
//       title: "New branch …",        // what the palette shows; " …" if it asks for more
//       shortcut: "b",                // optional, see below
//       when: (page) => page.head,    // optional: whether it can be run now
//       run: (page) => openDialog(page.thread),
//     });
//
// `page` is what `setPage` was given: {thread, branch, branches, head, row, isRunning, go, openHit,
// change, say, annotate}. `row` is the id of the message that has, or last had, the focus.
//
// A shortcut is a key as `KeyboardEvent.key` names it, with `Mod+` (Ctrl, or Cmd on a Mac), `Alt+`
// or `Shift+` before it. A letter without `Mod+` is ignored while a text is typed, and readers can
// turn such shortcuts off (WCAG 2.1.4).

const SINGLE_KEYS = "weft.single-keys"; // the storage key; "off" turns them off
const IS_MAC = /Mac|iPhone|iPad/.test(navigator.platform);

const commands = new Map();
const sources = [];
let page = {};

/** The functions and values that commands use; a getter is read at the time of use. */
export function setPage(value) {
	page = value;
}

/** Add a command; one with the same name is replaced. */
export function register(command) {
	commands.set(command.name, command);
}

/** Add entries to the palette that are not commands, such as threads.
 *  `entries(query, page)` returns, or resolves to, a list of {title, hint, run}. */
export function registerSource({ group, entries }) {
	sources.push({ group, entries });
}

/** Every command, in the order of registration. */
export function allCommands() {
	return [...commands.values()];
}

/** The commands that can be run now. */
export function available() {
	return allCommands().filter(isAvailable);
}

function isAvailable({ when }) {
	return when ? Boolean(when(page)) : true;
}

/** The entries of all sources for a query, with the name of their group. */
export async function sourceEntries(query) {
	const lists = await Promise.all(
		sources.map(async ({ group, entries }) => {
			const list = await Promise.resolve(entries(query, page)).catch(() => []);
			return list.map((entry) => ({ ...entry, group }));
		}),
	);
	return lists.flat();
}

/** Run a command by name; false if there is none, or it cannot be run now. */
export function run(name) {
	const command = commands.get(name);
	if (!command || !isAvailable(command)) return false;
	command.run(page);
	return true;
}

/** Run an entry of a source. */
export function runEntry(entry) {
	return entry.run(page);
}

/** "Ctrl+K", or "⌘K" on a Mac. */
export function shortcutLabel(shortcut) {
	const parts = shortcut.split(/\+(?=.)/);
	const key = parts.pop();
	const names = IS_MAC
		? { Mod: "⌘", Alt: "⌥", Shift: "⇧" }
		: { Mod: "Ctrl+", Alt: "Alt+", Shift: "Shift+" };
	return parts.map((part) => names[part]).join("") + (key.length === 1 ? key.toUpperCase() : key);
}

export function singleKeys() {
	return localStorage.getItem(SINGLE_KEYS) !== "off";
}

export function setSingleKeys(isOn) {
	if (isOn) localStorage.removeItem(SINGLE_KEYS);
	else localStorage.setItem(SINGLE_KEYS, "off");
}

/** Whether a key press is a shortcut. Shift is compared for letters only: `?` needs it on most
 *  keyboards, and not on all. */
export function matches(shortcut, event) {
	const parts = shortcut.split(/\+(?=.)/);
	const key = parts.pop();
	const isLetter = /^[a-z]$/i.test(key);
	const mod = IS_MAC ? event.metaKey : event.ctrlKey;
	const other = IS_MAC ? event.ctrlKey : event.metaKey;
	return (
		event.key.toLowerCase() === key.toLowerCase() &&
		mod === parts.includes("Mod") &&
		!other &&
		event.altKey === parts.includes("Alt") &&
		(!isLetter || event.shiftKey === parts.includes("Shift"))
	);
}

/** Whether keys go into a text. */
function isTyping({ target }) {
	return target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;
}

/** Run the command of a key press; for a `keydown` listener of the window. */
export function handleKey(event) {
	if (event.isComposing || event.defaultPrevented || document.querySelector("dialog[open]")) return;
	for (const command of commands.values()) {
		const { shortcut } = command;
		if (!shortcut || !matches(shortcut, event)) continue;
		const isSingle = !/(Mod|Alt)\+/.test(shortcut);
		if (isSingle && (isTyping(event) || !singleKeys())) continue;
		if (!isAvailable(command)) continue;
		event.preventDefault();
		command.run(page);
		return;
	}
}
