// One line at the bottom of the conversation, which screen readers announce.

import { button, byId } from "./dom.js";

const MILLISECONDS = 6000;

let timer;

/** Show a line; `action` is a button in it: {label, run, shows}. */
export function say(text, isError = false, action = null) {
	const toast = byId("toast");
	toast.textContent = text ?? "";
	toast.className = isError ? "error" : "";
	if (action) toast.append(button(action.label, action.run, { class: null }));
	clearTimeout(timer);
	timer = setTimeout(() => (toast.textContent = ""), action?.shows ?? MILLISECONDS);
}
