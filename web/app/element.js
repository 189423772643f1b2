/**
 * Builds elements. Text only ever gets in as text nodes, so nothing that somebody wrote can become markup.
 */

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {{ [name: string]: unknown, on?: { [event: string]: (event: any) => void } }} Props */

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Props | null} [props] `on` holds listeners; `true` sets an empty attribute, `false`, `null` and `undefined` none
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name === 'on') {
      for (const [event, listener] of Object.entries(/** @type {{[event: string]: (event: Event) => void}} */ (value))) {
        element.addEventListener(event, listener);
      }
    } else {
      attribute(element, name, value);
    }
  }
  append(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {string} name
 * @param {unknown} value
 */
export function attribute(element, name, value) {
  if (value === false || value === null || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== (value === true ? '' : String(value))) {
    element.setAttribute(name, value === true ? '' : String(value));
  }
}

/**
 * @param {Element} element
 * @param {(Child | Child[])[]} children
 */
export function append(element, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/**
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/**
 * Words of a person, kept from turning the direction of what stands around them.
 * @param {string} text
 * @param {string} [className]
 */
export function isolated(text, className) {
  return h('bdi', className ? { class: className } : null, text);
}

/**
 * @param {string} name
 * @param {string} label read out, and shown by the pointer
 * @param {() => void} action
 * @param {Props} [props]
 */
export function iconButton(name, label, action, props = {}) {
  const { class: extra, ...rest } = props;
  return h(
    'button',
    { type: 'button', class: `icon-button ${extra ?? ''}`.trim(), 'aria-label': label, title: label, on: { click: () => action() }, ...rest },
    icon(name),
  );
}

/** Strokes on a 24 by 24 grid. @type {{[name: string]: string[]}} */
const SHAPES = {
  back: ['M15 5l-7 7 7 7'],
  plus: ['M12 5v14', 'M5 12h14'],
  close: ['M6 6l12 12', 'M18 6L6 18'],
  search: ['M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14z', 'M20 20l-4-4'],
  more: ['M5 12h.01', 'M12 12h.01', 'M19 12h.01'],
  reply: ['M9 7l-5 5 5 5', 'M4 12h10a6 6 0 0 1 6 6'],
  smile: ['M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17z', 'M8.5 14.2a4.2 4.2 0 0 0 7 0', 'M9.2 9.7h.01', 'M14.8 9.7h.01'],
  picture: ['M4 6.5A1.5 1.5 0 0 1 5.5 5h13A1.5 1.5 0 0 1 20 6.500v11a1.5 1.5 0 0 1-1.5 1.500h-13A1.5 1.5 0 0 1 4 17.500z', 'M4.5 16.500l4.5-4.5 3.5 3.5 2.5-2.5 4.5 4.5', 'M15.5 9h.01'],
  send: ['M12 19V5.5', 'M6 11.500l6-6 6 6'],
  down: ['M12 5v13', 'M6 12.500l6 6 6-6'],
  edit: ['M5 19l.8-3.600L16 5.200a1.7 1.7 0 0 1 2.4 0l.4.4a1.7 1.7 0 0 1 0 2.400L8.6 18.2 5 19z'],
  bin: ['M5 7h14', 'M10 4h4', 'M7 7l.8 12a1 1 0 0 0 1 1h6.400a1 1 0 0 0 1-1L17 7'],
  copy: ['M9 9h9v11H9z', 'M6 15V4h9'],
  eye: ['M3 12s3.3-6 9-6 9 6 9 6-3.3 6-9 6-9-6-9-6z', 'M12 9.500a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5z'],
  bell: ['M6 16.500V11a6 6 0 0 1 12 0v5.500l1.5 1.500h-15z', 'M10 20.500h4'],
  muted: ['M6 16.500V11a6 6 0 0 1 8.5-5.450', 'M17.9 9.900l.1 6.6 1.5 1.500h-13', 'M10 20.500h4', 'M4 4l16 16'],
  pin: ['M9 4h6l-.8 6 3.3 3.500h-11L9.8 10z', 'M12 13.500V20'],
  info: ['M12 3.500a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17z', 'M12 11v5', 'M12 8h.01'],
  people: ['M9 5a3.2 3.2 0 1 0 0 6.400A3.2 3.2 0 0 0 9 5z', 'M3 19c0-3.2 2.7-5 6-5s6 1.8 6 5', 'M15.5 5.300a3.2 3.2 0 0 1 0 5.9', 'M17 14.300c2.4.5 4 2.2 4 4.7'],
  leave: ['M14 5H6v14h8', 'M11 12h9', 'M17 8.500l3.5 3.5-3.5 3.5'],
  settings: ['M4 7h9', 'M17 7h3', 'M15 5a2 2 0 1 0 0 4 2 2 0 0 0 0-4z', 'M4 17h3', 'M11 17h9', 'M9 15a2 2 0 1 0 0 4 2 2 0 0 0 0-4z'],
  retry: ['M19 8a8 8 0 1 0 1 5', 'M20 4v4.500h-4.5'],
  check: ['M5 12.500l4.5 4.500L19 7.5'],
  clock: ['M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16z', 'M12 8v4.500l3 1.5'],
  warning: ['M12 4.500l8.5 15h-17z', 'M12 10v4', 'M12 16.800h.01'],
};

/** @param {string} name */
export function icon(name) {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  for (const shape of SHAPES[name] ?? []) {
    const path = document.createElementNS(space, 'path');
    path.setAttribute('d', shape);
    svg.append(path);
  }
  return svg;
}

/**
 * A round sign for a person or a group: the first letter on a colour that always is the same for the same id.
 * @param {string} id
 * @param {string} name
 * @param {boolean} [small]
 */
export function avatar(id, name, small) {
  let sum = 7;
  for (const letter of id) sum = (sum * 31 + (letter.codePointAt(0) ?? 0)) % 9973;
  const first = firstLetter(name);
  return h('span', { class: `avatar tint-${sum % 8}${small ? ' small' : ''}`, 'aria-hidden': 'true' }, first);
}

/** Whether there is anything to see: no white space, no characters that only format. @param {string} text */
export function visible(text) {
  return /[^\s\p{Cf}\p{Cc}\p{Zs}]/u.test(text);
}

/** @param {string} name */
function firstLetter(name) {
  const visible = name.replace(/[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, '').trim();
  const [first] = new Intl.Segmenter(undefined, { granularity: 'grapheme' }).segment(visible);
  return (first?.segment ?? '?').toUpperCase();
}
