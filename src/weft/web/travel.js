// Reading an earlier commit: a banner says which one, and nothing can be written until the reader
// goes back to the newest or starts a branch.

import { byId, clock, count } from "./dom.js";
import { register } from "./commands.js";
import { effect } from "./signals.js";
import { state } from "./state.js";

/** Keep the banner up to date. `back()` shows the newest commit again; `branch(commit)` starts a
 *  branch at a commit. */
export function showTravel({ back, branch }) {
	byId("past-back").addEventListener("click", back);
	byId("past-branch").addEventListener("click", () => branch(state.view.commit));
	register({ name: "commit.newest", title: "Back to the newest commit", when: () => state.at !== null, run: back });
	effect(() => {
		// A run is shown after the commit before it: that is no past.
		const commit = state.at ? state.view?.commit : null;
		byId("past").hidden = !commit;
		document.body.classList.toggle("reading-past", Boolean(commit));
		if (commit) byId("past-text").textContent = describe(commit);
	});
}

function describe({ number, of, id, created, branch }) {
	const place = of
		? `commit ${count(number)} of ${count(of)} on ${branch}`
		: "a commit that no branch has any more";
	return `You are reading ${place}: ${id.slice(0, 7)}, ${clock(created)}. Later changes are not shown.`;
}
