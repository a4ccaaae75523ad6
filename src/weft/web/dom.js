// Create elements. Strings become text nodes. HTML is set only by `trusted`, with HTML that the
// server has sanitised.

/** An element: `el("button.quiet", { onclick }, "Pin")`, with classes after the tag. Attributes may
 *  be left out. Strings become text nodes. */
export function el(name, ...rest) {
	const [tag, ...classes] = name.split(".");
	const node = document.createElement(tag);
	if (classes.length) node.className = classes.join(" ");
	const attributes = rest[0]?.constructor === Object ? rest.shift() : {};
	for (const [key, value] of Object.entries(attributes)) {
		if (value === null || value === undefined || value === false) continue;
		if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
		else node.setAttribute(key, value === true ? "" : String(value));
	}
	const children = rest.filter((child) => child !== null && child !== undefined);
	node.append(...children.map((child) => (typeof child === "string" ? visible(child) : child)));
	return node;
}

const DIRECTION = /[\u202a-\u202e\u2066-\u2069]/g;

/** A text in which characters are visible that would turn the rest of it around. */
export function visible(text) {
	return text.replace(DIRECTION, (mark) => `⟨U+${mark.codePointAt(0).toString(16).toUpperCase()}⟩`);
}

/** A quiet button, unless `attributes` has another class. */
export function button(label, onclick, attributes = {}) {
	return el("button", { type: "button", class: "quiet", onclick, ...attributes }, label);
}

/** An element of an SVG picture. */
export function svg(tag, attributes = {}, ...children) {
	const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
	for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
	node.append(...children);
	return node;
}

/** Fill a node with HTML that the server's sanitiser wrote; code blocks get a copy button. */
export function trusted(node, html) {
	node.innerHTML = html;
	for (const code of node.querySelectorAll("pre")) {
		const box = el("div.code");
		code.replaceWith(box);
		box.append(code, button("Copy", ({ target }) => copyCode(code, target)));
	}
	return node;
}

const COPIED_MILLISECONDS = 2000;

async function copyCode(code, target) {
	target.textContent = await copy(code.textContent.replace(/\n$/, "")).then(() => "Copied", ({ message }) => message);
	setTimeout(() => (target.textContent = "Copy"), COPIED_MILLISECONDS);
}

/** Put a text on the clipboard. */
export async function copy(text) {
	// Browsers have a clipboard over HTTPS and on this machine only.
	if (!navigator.clipboard) throw new Error("This browser copies over HTTPS only.");
	await navigator.clipboard.writeText(text);
}

/** Replace the children of a node. */
export function refill(node, ...children) {
	node.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
	return node;
}

export function byId(id) {
	return document.getElementById(id);
}

/** 12,345 in the reader's locale. */
export function count(number) {
	return Number(number ?? 0).toLocaleString();
}

export function plural(number, one, many = `${one}s`) {
	return `${count(number)} ${number === 1 ? one : many}`;
}

/** "3 min ago", from seconds since 1970. */
export function ago(seconds) {
	if (!seconds) return "";
	const past = Math.max(0, Date.now() / 1000 - seconds);
	for (const [size, unit] of [
		[86400, "d"],
		[3600, "h"],
		[60, "min"],
	]) {
		if (past >= size) return `${Math.floor(past / size)} ${unit} ago`;
	}
	return "just now";
}

/** Make `nodes` the children of a parent between two of its children (both may be null). Nodes that
 *  are already in place are not touched, so focus, selection and scroll positions survive. */
export function reconcile(parent, nodes, after = null, before = null) {
	const wanted = new Set(nodes);
	let next = after ? after.nextSibling : parent.firstChild;
	for (let node = next; node && node !== before; ) {
		const following = node.nextSibling;
		if (!wanted.has(node)) node.remove();
		node = following;
	}
	next = after ? after.nextSibling : parent.firstChild;
	for (const node of nodes) {
		if (node === next) next = next.nextSibling;
		else parent.insertBefore(node, next);
	}
}

/** Open the panels of a new node that are open in the old one; panels are matched by `data-key`. */
export function keepOpen(old, node) {
	const panels = (root) => [root, ...root.querySelectorAll("details")].filter((each) => each.matches("details"));
	const isOpen = new Map(panels(old).map((each) => [each.dataset.key, each.open]));
	for (const each of panels(node)) {
		if (isOpen.has(each.dataset.key)) each.open = isOpen.get(each.dataset.key);
	}
	return node;
}

const TIME = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit" });
const DATE = new Intl.DateTimeFormat(); // made once: that takes longer than to use them

/** "14:03", with the date unless it is today's; from seconds since 1970. */
export function clock(seconds) {
	const date = new Date(seconds * 1000);
	const time = TIME.format(date);
	const isToday = date.toDateString() === new Date().toDateString();
	return isToday ? time : `${DATE.format(date)} ${time}`;
}
