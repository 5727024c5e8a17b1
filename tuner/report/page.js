// Draws the figures when the words are on the screen: those in sight first, the rest one by one while nothing else happens.
(function () {
  "use strict";
  var root = document.documentElement;
  var read = function (id) { return document.getElementById(id).textContent; };
  var figures = JSON.parse(read("figures"));
  var palette = JSON.parse(read("palette"));
  var system = matchMedia("(prefers-color-scheme: dark)");
  var plots = Array.prototype.slice.call(document.querySelectorAll(".plot[data-figure]"));
  var waiting = plots.slice();
  var printing = false;
  var config = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false, showTips: false };

  function theme() {
    return printing ? "light" : root.dataset.theme || (system.matches ? "dark" : "light");
  }

  // Every colour of the light palette is one role: put the role's colour of the other palette in its place.
  function coloured(figure) {
    if (theme() === "light") return JSON.parse(JSON.stringify(figure));
    var dark = {};
    Object.keys(palette.light).forEach(function (role) { dark[palette.light[role]] = palette.dark[role]; });
    return JSON.parse(JSON.stringify(figure), function (key, value) {
      return typeof value === "string" && Object.prototype.hasOwnProperty.call(dark, value) ? dark[value] : value;
    });
  }

  function load() {
    if (window.Plotly || !plots.length) return;
    var code = document.createElement("script");
    code.textContent = read("plotly");
    document.head.appendChild(code);
  }

  function draw(plot) {
    load();
    var figure = coloured(figures[plot.dataset.figure]);
    // On a narrow page the box is all there is: no more margin than labels need.
    if (plot.clientWidth < 460 && figure.layout.margin.l > 40) figure.layout.margin.l = 40;
    // The page has a legend of its own above the figure.
    figure.layout.showlegend = false;
    figure.layout.margin.t = Math.min(figure.layout.margin.t, 12);
    Plotly.react(plot, figure.data, figure.layout, config);
    plot.dataset.drawn = theme();
  }

  function next() {
    if (!waiting.length) return;
    draw(waiting.shift());
    root.dataset.waiting = String(waiting.length);
    later(next);
  }

  var later = window.requestIdleCallback
    ? function (work) { requestIdleCallback(work, { timeout: 500 }); }
    : function (work) { setTimeout(work, 30); };

  function inSightFirst(entries) {
    entries.forEach(function (entry) {
      if (!entry.isIntersecting) return;
      var place = waiting.indexOf(entry.target);
      if (place > 0) waiting.unshift(waiting.splice(place, 1)[0]);
    });
  }

  function again() {
    plots.forEach(function (plot) {
      if (plot.dataset.drawn && plot.dataset.drawn !== theme()) draw(plot);
    });
    label();
  }

  var button = document.getElementById("theme");
  function label() {
    button.textContent = theme() === "dark" ? "Light theme" : "Dark theme";
  }
  button.addEventListener("click", function () {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    try { localStorage.setItem("tuner-report-theme", root.dataset.theme); } catch (refused) { /* for this visit only */ }
    again();
  });
  button.hidden = false;
  label();
  system.addEventListener("change", again);

  window.addEventListener("beforeprint", function () {
    printing = true;
    document.querySelectorAll("details").forEach(function (one) {
      if (!one.open) { one.open = true; one.dataset.printed = ""; }
    });
    while (waiting.length) draw(waiting.shift());
    again();
    plots.forEach(function (plot) { Plotly.Plots.resize(plot); });
  });
  window.addEventListener("afterprint", function () {
    printing = false;
    document.querySelectorAll("details[data-printed]").forEach(function (one) {
      one.open = false;
      delete one.dataset.printed;
    });
    again();
  });

  // A figure in a folded box has no width until it is opened.
  document.querySelectorAll("details").forEach(function (one) {
    one.addEventListener("toggle", function () {
      if (!one.open || !window.Plotly) return;
      one.querySelectorAll(".plot[data-drawn]").forEach(function (plot) { Plotly.Plots.resize(plot); });
    });
  });

  root.dataset.waiting = String(waiting.length);
  if (window.IntersectionObserver) {
    var observer = new IntersectionObserver(inSightFirst, { rootMargin: "400px" });
    plots.forEach(function (plot) { observer.observe(plot); });
  }
  // Two frames: the first one paints the words.
  requestAnimationFrame(function () { requestAnimationFrame(function () { later(next); }); });
})();
