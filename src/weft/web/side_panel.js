// The lists beside the conversation: the threads on the left, log and graph on the right. A wide
// screen shows both; on a narrow one they open over the conversation.

import { byId } from "./dom.js";
import { effect } from "./signals.js";
import { state } from "./state.js";

const TABS = ["log", "graph"];
const DRAWERS = { threads: "threadsOpen", log: "logOpen" };

export function showSidePanels() {
	effect(showTab);
	effect(showDrawers);
	for (const name of TABS) {
		byId(`tab-${name}`).addEventListener("click", () => (state.tab = name));
		byId(`tab-${name}`).addEventListener("keydown", ({ key }) => {
			if (key !== "ArrowLeft" && key !== "ArrowRight") return;
			state.tab = TABS.find((other) => other !== name);
			byId(`tab-${state.tab}`).focus();
		});
	}
	for (const [side, member] of Object.entries(DRAWERS)) {
		byId(`toggle-${side}`).addEventListener("click", () => (state[member] = !state[member]));
		document.querySelector(`[data-drawer=${side}]`).addEventListener("click", () => (state[member] = false));
	}
	addEventListener("keydown", (event) => {
		if (event.key !== "Escape" || document.querySelector("dialog[open], #menu")) return; // these close
		for (const member of Object.values(DRAWERS)) state[member] = false;
	});
}

function showTab() {
	for (const name of TABS) {
		byId(`${name}-panel`).hidden = name !== state.tab;
		byId(`tab-${name}`).setAttribute("aria-selected", String(name === state.tab));
		byId(`tab-${name}`).tabIndex = name === state.tab ? 0 : -1;
	}
	document.body.classList.toggle("show-graph", state.tab === "graph");
}

function showDrawers() {
	for (const [side, member] of Object.entries(DRAWERS)) {
		document.body.classList.toggle(`show-${side}`, state[member]);
		byId(`toggle-${side}`).setAttribute("aria-expanded", String(state[member]));
	}
}
