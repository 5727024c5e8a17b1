// Light or dark: what the reader chose for this page before, else what the system says. Runs before anything is painted.
(function () {
  "use strict";
  var root = document.documentElement;
  try {
    var chosen = localStorage.getItem("tuner-report-theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  } catch (refused) { /* a browser that keeps nothing for files: the system decides */ }
})();
