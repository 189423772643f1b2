/**
 * Language, light or dark, notifications, signing out.
 */

import { toggle } from './details.js';
import { openDialog } from './dialog.js';
import { h, isolated } from './element.js';
import { told } from './errors.js';
import { forGood } from './kept.js';
import { currentLanguage, pieces, setLanguage, t } from './words.js';

const KEPT = 'seqline.theme';

/** Sets what was chosen here before; called first of all. */
export function applyTheme() {
  const kept = forGood.get(KEPT);
  if (kept === 'light' || kept === 'dark') document.documentElement.dataset.theme = kept;
  else delete document.documentElement.dataset.theme;
}

/**
 * @param {import('./types.js').Page} page
 * @param {{ onLanguage: () => void, onSignOut: (() => void) | null, onDebug: () => void }} options
 */
export function openSettings(page, options) {
  const { chat, people } = page;
  const { dialog } = openDialog(
    t('settings'),
    (close) => [
      h('p', { class: 'quiet' }, pieces('signed_in_as', { name: isolated(people.name(chat.me ?? '')) })),
      select(t('language'), 'language', [['en', 'English'], ['zh', '简体中文']], currentLanguage(), (value) => {
        setLanguage(value === 'zh' ? 'zh' : 'en');
        close();
        options.onLanguage();
      }),
      select(t('theme'), 'theme', [['', t('theme_auto')], ['light', t('theme_light')], ['dark', t('theme_dark')]], forGood.get(KEPT) ?? '', (value) => {
        forGood.set(KEPT, value || null);
        applyTheme();
      }),
      pushPart(chat),
      h(
        'div',
        { class: 'dialog-actions spread' },
        h('button', { type: 'button', class: 'button', 'data-testid': 'debug', on: { click: () => { close(); options.onDebug(); } } }, t('debug')),
        options.onSignOut ? h('button', { type: 'button', class: 'button danger', 'data-testid': 'sign-out', on: { click: options.onSignOut } }, t('sign_out')) : null,
      ),
    ],
    { testId: 'settings-dialog' },
  );
  dialog.querySelector('select')?.focus();
}

/**
 * @param {string} label
 * @param {string} testId
 * @param {[string, string][]} choices
 * @param {string} chosen
 * @param {(value: string) => void} onChange
 */
function select(label, testId, choices, chosen, onChange) {
  const box = h('select', { class: 'input', 'data-testid': testId }, choices.map(([value, text]) => h('option', { value, selected: value === chosen }, text)));
  box.addEventListener('change', () => onChange(box.value));
  return h('label', { class: 'field' }, h('span', null, label), box);
}

/** @param {import('./types.js').Chat} chat */
function pushPart(chat) {
  const { push } = chat;
  if (!push?.supported) return h('p', { class: 'quiet' }, t('push_none'));
  if (push.state === 'denied' || (typeof Notification !== 'undefined' && Notification.permission === 'denied')) return h('p', { class: 'quiet' }, t('push_denied'));
  const on = push.state === 'on' || push.state === 'enabled';
  const preview = h('input', { type: 'checkbox', role: 'switch', 'data-testid': 'push-preview' });
  preview.checked = push.preview === true;
  const previewLine = h('label', { class: 'switch', hidden: !on }, h('span', null, t('push_preview')), preview);
  preview.addEventListener('change', () => void told(push.enable({ preview: preview.checked })));
  const main = toggle(t('push'), '', on, 'push', async (wanted) => {
    await (wanted ? push.enable({ preview: preview.checked }) : push.disable());
    previewLine.hidden = !wanted;
  });
  return h('div', { class: 'fields' }, main, previewLine);
}
