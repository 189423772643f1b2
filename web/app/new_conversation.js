/**
 * Beginning a conversation: with one person, or in a group.
 */

import { uuidv7 } from '../client/uuidv7.js';
import { openDialog } from './dialog.js';
import { h } from './element.js';
import { inWords } from './errors.js';
import { t } from './words.js';

/** User ids as people write lists. @param {string} text */
export function idsOf(text) {
  return [...new Set(text.split(/[,，、;；\n]+/).map((one) => one.trim()).filter((one) => one !== ''))];
}

/** @param {string} label @param {string} testId */
function field(label, testId) {
  const input = h('input', { class: 'input', autocapitalize: 'off', autocomplete: 'off', spellcheck: 'false', 'data-testid': testId, dir: 'auto' });
  return { input, element: h('label', { class: 'field' }, h('span', null, label), input) };
}

/** @param {string} value @param {string} label */
function choice(value, label) {
  const radio = h('input', { type: 'radio', name: 'kind', value, 'data-testid': `kind-${value}` });
  return { radio, element: h('label', null, radio, h('span', null, label)) };
}

/** @param {import('./types.js').Page} page */
export function openNewConversation(page) {
  const [single, group] = [choice('single', t('new_single')), choice('group', t('new_group'))];
  const [peer, title, members] = [field(t('new_peer'), 'peer'), field(t('new_title'), 'group-title'), field(t('new_members'), 'group-members')];
  const history = h('input', { type: 'checkbox', role: 'switch', 'data-testid': 'group-history' });
  history.checked = true;
  const ofGroup = h('div', { class: 'fields' }, title.element, members.element, h('label', { class: 'switch' }, h('span', null, t('new_history')), history));
  const fault = h('p', { class: 'error-text', role: 'alert', hidden: true });
  const button = h('button', { class: 'button primary', 'data-testid': 'create' });
  const form = h(
    'form',
    { class: 'fields' },
    h('div', { class: 'choice', role: 'radiogroup', 'aria-label': t('new_conversation') }, single.element, group.element),
    peer.element,
    ofGroup,
    fault,
    h('div', { class: 'dialog-actions' }, button),
  );
  const show = () => {
    const many = group.radio.checked;
    peer.element.hidden = many;
    ofGroup.hidden = !many;
    button.textContent = many ? t('create') : t('open');
  };
  single.radio.checked = true;
  form.addEventListener('change', show);
  show();
  const { close } = openDialog(t('new_conversation'), () => [form], { testId: 'new-dialog' });
  peer.input.focus();
  /** The same attempt at the same thing bears the same key, so that an answer that was lost makes no second group. @type {{ wanted: string, key: string } | null} */
  let attempt = null;
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    fault.hidden = true;
    button.disabled = true;
    const named = title.input.value.trim();
    const wanted = group.radio.checked
      ? { kind: 'group', members: idsOf(members.input.value), ...(named ? { title: named } : {}), history: history.checked ? 'all' : 'from_join' }
      : { kind: 'single', peer: peer.input.value.trim() };
    try {
      const same = JSON.stringify(wanted);
      if (attempt?.wanted !== same) attempt = { wanted: same, key: uuidv7() };
      const made = await page.chat.createConversation(wanted, { key: attempt.key });
      close();
      page.open(made.id);
    } catch (error) {
      fault.textContent = inWords(error);
      fault.hidden = false;
    }
    button.disabled = false;
  });
}
