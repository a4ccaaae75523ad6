// Dialogs and menus that are made when they are opened.

import { el } from "./dom.js";

/** Open a modal dialog; it is removed when it closes. `buttons` are [{label, run, kind, id}]: `run`
 *  may return false to keep the dialog open. Returns {node, body, foot, close, fail}. */
export function openDialog({ id, title, body = [], buttons = [], wide = false, cancel = "Cancel" }) {
	document.getElementById(id)?.remove();
	const heading = el("h2", { id: `${id}-title` }, title);
	const content = el("div.dialog-body", ...body);
	const problem = el("p.error", { role: "alert" });
	const foot = el("p.line.end");
	const node = el(
		"dialog",
		{ id, class: wide ? "wide" : null, "aria-labelledby": `${id}-title` },
		heading,
		content,
		problem,
		foot,
	);
	const close = () => node.close();
	const fail = (message) => (problem.textContent = message);
	const act = async (button, run) => {
		button.disabled = true;
		fail("");
		try {
			if ((await run()) !== false) close();
		} catch (error) {
			fail(error.message);
		}
		button.disabled = false;
	};
	for (const { label, run, kind, id: name } of [{ label: cancel, run: close, kind: "quiet" }, ...buttons]) {
		const button = el("button", { type: "button", class: kind, id: name }, label);
		button.addEventListener("click", () => act(button, run));
		foot.append(button);
	}
	node.addEventListener("close", () => node.remove());
	document.body.append(node);
	node.showModal();
	return { node, body: content, foot, close, fail };
}

/** Ask for one text; `run(text)` follows, unless the text is empty. `value` is there already. */
export function askText({ id, title, label, note, value = "", rows = 1, save = "Save", run }) {
	const input =
		rows > 1
			? el("textarea", { id: `${id}-text`, rows })
			: el("input", { id: `${id}-text`, maxlength: 120, autocomplete: "off" });
	input.value = value;
	const facts = note ? [el("p.muted", note)] : [];
	const check = () => (input.value.trim() ? run(input.value.trim()) : false);
	const buttons = [{ label: save, run: check, id: `${id}-save` }];
	const dialog = openDialog({ id, title, body: [...facts, field(label, input)], buttons });
	if (rows === 1)
		input.addEventListener("keydown", (event) => {
			if (event.key !== "Enter" || event.isComposing) return;
			event.preventDefault();
			dialog.foot.querySelector(`#${id}-save`).click();
		});
	input.focus();
	input.select();
}

/** A field with its label. */
export function field(label, input) {
	return el("p.line", el("label", { for: input.id }, label), input);
}

/** Open a menu at a button. `items` are [{label, run, title}]; arrows move, Escape closes. */
export function openMenu(button, items) {
	document.getElementById("menu")?.hidePopover();
	const menu = el("ul", { id: "menu", role: "menu", popover: "auto" });
	const close = () => menu.hidePopover();
	const entries = items.map(({ label, run, title }) => {
		const choose = () => {
			close();
			run();
		};
		return el("li", { role: "menuitem", tabindex: -1, title, onclick: choose, "data-item": label }, label);
	});
	menu.append(...entries);
	document.querySelector("main").append(menu); // inside a landmark
	button.setAttribute("aria-expanded", "true");
	menu.addEventListener("keydown", (event) => {
		const index = entries.indexOf(document.activeElement);
		const next = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: -1 }[event.key];
		if (next !== undefined) entries.at(next % entries.length).focus();
		else if (event.key === "Enter" || event.key === " ") entries[index]?.click();
		else if (event.key === "Tab") close();
		else return;
		event.preventDefault();
		event.stopPropagation();
	});
	menu.addEventListener("toggle", ({ newState }) => {
		if (newState !== "closed") return;
		button.setAttribute("aria-expanded", "false");
		if (menu.contains(document.activeElement) || document.activeElement === document.body) button.focus();
		menu.remove();
	});
	menu.showPopover();
	const [at, size] = [button.getBoundingClientRect(), menu.getBoundingClientRect()];
	const top = at.bottom + size.height + 8 > innerHeight ? at.top - size.height - 4 : at.bottom + 4;
	menu.style.top = `${Math.max(4, top)}px`;
	menu.style.left = `${Math.max(4, Math.min(at.right - size.width, innerWidth - size.width - 4))}px`;
	entries[0]?.focus();
}
