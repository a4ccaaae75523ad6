// Reading an earlier commit: a banner says which one, and nothing can be written until the reader
// goes back to the newest or starts a branch.

import { byId, clock, count } from "./dom.js";

export class Travel {
	/** `back()` shows the newest commit again; `branch(commit)` starts a branch at a commit. */
	constructor({ back, branch }) {
		this.commit = null;
		byId("past-back").addEventListener("click", back);
		byId("past-branch").addEventListener("click", () => branch(this.commit));
	}

	/** Show which commit is read; null: the newest. `view` is the answer of `/api/rows`. */
	show(view) {
		const { commit } = view;
		this.commit = commit ?? null;
		byId("past").hidden = !commit;
		document.body.classList.toggle("reading-past", Boolean(commit));
		if (!commit) return;
		const { number, of, id, created, branch } = commit;
		const place = of
			? `commit ${count(number)} of ${count(of)} on ${branch}`
			: "a commit that no branch has any more";
		byId("past-text").textContent =
			`You are reading ${place}: ${id.slice(0, 7)}, ${clock(created)}. Later changes are not shown.`;
	}
}
