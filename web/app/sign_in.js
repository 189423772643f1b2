/**
 * The form for a token, for who opens the page without a host application around it.
 */

import { fill, h } from './element.js';
import { keep, looksLikeToken } from './session.js';
import { locale, t } from './words.js';

/**
 * @param {HTMLElement} root
 * @param {{ refused: boolean, onToken: () => void }} options
 */
export function mountSignIn(root, { refused, onToken }) {
  document.documentElement.lang = locale();
  // It counted what was unread for somebody.
  document.title = t('app');
  const field = h('textarea', { class: 'input', rows: '4', 'aria-label': t('sign_in_field'), placeholder: 'eyJ…', autocomplete: 'off', autocapitalize: 'off', spellcheck: 'false', 'data-testid': 'token' });
  const fault = h('p', { class: 'error-text', role: 'alert', hidden: !refused }, t('sign_in_refused'));
  const form = h(
    'form',
    { class: 'sign-in', 'data-testid': 'sign-in' },
    h('img', { src: '/icons/seqline.svg', alt: '', width: '52', height: '52' }),
    h('h1', null, t('sign_in')),
    h('p', { class: 'quiet' }, t('sign_in_why')),
    field,
    fault,
    h('button', { class: 'button primary' }, t('sign_in')),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const token = field.value.replace(/\s/g, '').replace(/^Bearer/i, '');
    if (!looksLikeToken(token)) {
      fault.textContent = t('sign_in_bad');
      fault.hidden = false;
      return;
    }
    keep(token);
    onToken();
  });
  // Enter has no other use in a token.
  field.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  fill(root, h('main', { class: 'sign-in-page' }, form));
  field.focus();
}
