// The values, and the blocks of numbers, which are decoded on first use.
const SIDES = JSON.parse(document.getElementById('values').textContent);
const HALF = (() => {
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits += 1) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    table[bits] = sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
  }
  return table;
})();

function bytesOf(side, name) {
  const text = atob(document.getElementById(`block-${side}-${name}`).textContent);
  const bytes = new Uint8Array(text.length);
  for (let n = 0; n < text.length; n += 1) bytes[n] = text.charCodeAt(n);
  return bytes;
}

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'class') made.className = value;
    else if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
}

const digits = (value, count = 3) => (value === null || value === undefined || Number.isNaN(value) ? '–' : value.toFixed(count).replace('-', '−'));
