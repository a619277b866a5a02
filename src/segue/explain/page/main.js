const VIEWS = {
  attention: { has: (side) => side.maps, draw: attentionView, controls: ['layer', 'head', 'stream', 'term'], hint: 'map_hint' },
  terms: { has: (side) => side.statistics, draw: termsView, controls: ['layer', 'head', 'stream'] },
  losses: { has: (side) => side.changes, draw: lossesView, controls: [] },
  words: { has: (side) => side.words, draw: wordsView, controls: [] },
  order: { has: (side) => side.order, draw: orderView, controls: [] },
};
const there = Object.keys(VIEWS).filter((name) => SIDES.some((side) => VIEWS[name].has(side)));
const first = SIDES.find((side) => side.maps);
const state = { view: there[0], layer: first?.maps.layers[0] ?? 0, head: 0, stream: 'content', term: 'probability', method: 'integrated_gradients', step: 0 };

function union(choose) {
  return [...new Set(SIDES.filter((side) => side.maps).flatMap(choose))];
}

function control(name) {
  const choices = {
    layer: () => union((side) => (state.view === 'terms' ? side.statistics.content.share.map((_, n) => n) : side.maps.layers)).map((n) => [n, n]),
    head: () => union((side) => Array.from({ length: side.maps.heads }, (_, n) => n)).map((n) => [n, n]),
    stream: () => union((side) => side.maps.streams).map((one) => [one, say(`${one}_stream`)]),
    term: () => ['probability', 'score', ...union((side) => side.maps.terms)].map((one) => [one, say(one)]),
  }[name]();
  if (choices.length < 2 && name === 'stream') return null;
  const chosen = element('select', { id: `choose-${name}`, onchange: (event) => { state[name] = typeof state[name] === 'number' ? Number(event.target.value) : event.target.value; refresh(); document.getElementById(`choose-${name}`).focus(); } },
    ...choices.map(([value, text]) => element('option', { value, selected: value === state[name] }, String(text))));
  return element('label', {}, say(name === 'term' ? 'shown' : name), chosen);
}

function refresh() {
  document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en';
  document.getElementById('language').textContent = say('language');
  document.getElementById('theme').textContent = say('theme');
  const tabs = document.getElementById('tabs');
  const focused = document.activeElement?.id;
  tabs.replaceChildren(...there.map((name) => element('button', { type: 'button', role: 'tab', id: `tab-${name}`, 'aria-selected': String(name === state.view), tabindex: name === state.view ? 0 : -1, onclick: () => { state.view = name; refresh(); } }, say(name))));
  const view = VIEWS[state.view];
  const main = document.getElementById('main');
  if (!view) { main.replaceChildren(element('p', { class: 'missing' }, say('no_data'))); return; }
  main.replaceChildren(
    element('div', { class: 'controls' }, ...view.controls.map(control)),
    element('div', { class: 'sides' }, ...SIDES.map((side, number) => (view.has(side) ? view.draw(number, state) : element('section', { class: 'card' }, element('h2', {}, side.name), element('p', { class: 'hint' }, say('no_data')))))),
    view.hint ? element('p', { class: 'hint' }, say(view.hint)) : '');
  if (focused?.startsWith('tab-')) document.getElementById(`tab-${state.view}`)?.focus();
}

document.getElementById('tabs').addEventListener('keydown', (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  state.view = there[(there.indexOf(state.view) + step + there.length) % there.length];
  refresh();
  document.getElementById(`tab-${state.view}`).focus();
});
document.getElementById('language').addEventListener('click', () => { language = language === 'zh' ? 'en' : 'zh'; refresh(); });
document.getElementById('theme').addEventListener('click', () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
  refresh();
});
refresh();
document.documentElement.dataset.ready = 'true';
