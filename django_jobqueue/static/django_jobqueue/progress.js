"use strict";
// Keeps the elements of {% job_progress %} up to date. Screen readers hear changes of the state, not every number.
(function () {
  const FIRST_PAUSE = 1000;
  const LONGEST_PAUSE = 5000;

  function show(element, found) {
    const bar = element.querySelector("progress");
    if (found.percent === null) {
      bar.removeAttribute("value");
    } else {
      bar.value = found.percent;
    }
    element.querySelector(".jobqueue-stage").textContent = found.stage;
    const state = element.querySelector(".jobqueue-state");
    if (element.dataset.jobqueueState !== found.state) {
      element.dataset.jobqueueState = found.state;
      state.textContent = found.label;
    }
    if (found.is_over) {
      element.dataset.jobqueueOver = "";
      element.dispatchEvent(new CustomEvent("jobqueue:over", { bubbles: true, detail: found }));
    }
  }

  async function follow(element, pause) {
    let next = Math.min(pause * 1.2, LONGEST_PAUSE);
    try {
      const response = await fetch(element.dataset.jobqueueProgress, { headers: { Accept: "application/json" } });
      if (response.status === 404) {
        return;
      }
      if (response.ok) {
        const found = await response.json();
        show(element, found);
        if (found.is_over) {
          return;
        }
      }
    } catch (error) {
      next = LONGEST_PAUSE; // the server is away: ask again later
    }
    setTimeout(follow, next, element, next);
  }

  function start() {
    for (const element of document.querySelectorAll("[data-jobqueue-progress]:not([data-jobqueue-over])")) {
      setTimeout(follow, FIRST_PAUSE, element, FIRST_PAUSE);
    }
  }

  if (document.readyState === "loading") {
    document.addEventListener("DOMContentLoaded", start);
  } else {
    start();
  }
})();
