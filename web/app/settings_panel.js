/**
 * Language, light or dark, notifications, signing out.
 */

import { toggle } from './details.js';
import { notice, openDialog } from './dialog.js';
import { fill, h, isolated } from './element.js';
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
  const place = h('div', { class: 'fields' });
  const denied = () => Notification.permission === 'denied';
  const showDenied = () => fill(place, h('p', { class: 'quiet', tabindex: '-1', 'data-testid': 'push-denied' }, t('push_denied')));
  if (denied()) {
    showDenied();
    return place;
  }
  const on = push.state === 'on';
  const preview = toggle(t('push_preview'), '', push.preview, 'push-preview', async (wanted) => (await push.enable({ preview: wanted })) === 'on');
  const box = /** @type {HTMLInputElement} */ (preview.querySelector('input'));
  preview.hidden = !on;
  const main = toggle(t('push'), '', on, 'push', async (wanted) => {
    const state = await (wanted ? push.enable({ preview: box.checked }) : push.disable());
    preview.hidden = state !== 'on';
    if (!wanted || state === 'on') return true;
    // The browser asked, and was told no, or nothing at all.
    if (denied()) {
      showDenied();
      place.querySelector('p')?.focus();
    } else notice(t('push_unanswered'), true);
    return false;
  });
  place.append(main, preview);
  return place;
}
