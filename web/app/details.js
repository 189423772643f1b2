/**
 * What a conversation is, who belongs to it, and what one may change about it.
 */

import { confirmed, openDialog } from './dialog.js';
import { avatar, fill, h, iconButton, isolated } from './element.js';
import { inWords, told } from './errors.js';
import { idsOf } from './new_conversation.js';
import { titleOf } from './people.js';
import { pieces, t } from './words.js';

/** @typedef {import('./types.js').Page} Page */
/** @typedef {{ user_id: string, role: string, name?: string | null }} Member */

/**
 * @param {Page} page
 * @param {import('./types.js').OpenConversation} conversation
 * @param {string} id
 */
export function openDetails(page, conversation, id) {
  /** @type {import('./types.js').Summary | undefined} */
  const info = conversation.info ?? page.chat.conversations.items.find((/** @type {{ id: string }} */ one) => one.id === id);
  if (!info) return;
  const owns = info.me?.role === 'owner' && info.kind === 'group';
  openDialog(
    titleOf(info, t('unnamed_group')),
    (close) => [
      owns ? renameForm(conversation, info, close) : null,
      toggle(t('mute'), t('mute_why'), info.me?.muted === true, 'mute', (on) => conversation.setPreferences({ muted: on })),
      toggle(t('pin'), t('pin_why'), info.me?.pinned === true, 'pin', (on) => conversation.setPreferences({ pinned: on })),
      h('button', { type: 'button', class: 'button', 'data-testid': 'mark-unread', on: { click: () => void told(conversation.setPreferences({ marked_unread: true })).then(close) } }, t('mark_unread')),
      info.kind === 'single' ? null : members(page, conversation, info, owns),
      info.kind === 'group' ? leaveButton(page, conversation, id, close) : null,
    ],
    { testId: 'details-dialog' },
  );
}

/**
 * @param {string} label
 * @param {string} why
 * @param {boolean} on
 * @param {string} testId
 * @param {(on: boolean) => Promise<unknown>} set false, or a failure: it stays as it was
 */
export function toggle(label, why, on, testId, set) {
  const box = h('input', { type: 'checkbox', role: 'switch', 'data-testid': testId });
  box.checked = on;
  box.addEventListener('change', async () => {
    box.disabled = true;
    const wanted = box.checked;
    const done = await told(set(wanted).then((said) => said !== false));
    if (!done) box.checked = !wanted;
    box.disabled = false;
  });
  return h('label', { class: 'switch' }, h('span', null, h('strong', null, label), why ? h('small', null, why) : null), box);
}

/** @param {import('./types.js').OpenConversation} conversation @param {import('./types.js').Summary} info @param {() => void} close */
function renameForm(conversation, info, close) {
  const field = h('input', { class: 'input', maxlength: '80', 'aria-label': t('title'), placeholder: t('title'), 'data-testid': 'rename-field', dir: 'auto' });
  field.value = info.title ?? '';
  const form = h('form', { class: 'inline-form' }, field, h('button', { class: 'button', 'data-testid': 'rename' }, t('rename')));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (field.value.trim() && (await told(conversation.rename(field.value.trim()).then(() => true)))) close();
  });
  return form;
}

/** @param {Page} page @param {import('./types.js').OpenConversation} conversation @param {import('./types.js').Summary} info @param {boolean} owns */
function members(page, conversation, info, owns) {
  const list = h('ul', { class: 'people', 'data-testid': 'members' });
  const fault = h('p', { class: 'error-text', role: 'alert', hidden: true });
  /** @type {Member[]} */
  let shown = [];
  const show = () => fill(list, shown.map((member) => row(member)));
  /** @param {Member} member */
  const row = (member) => {
    page.people.learn(member.user_id, member.name);
    const name = page.people.name(member.user_id);
    const self = member.user_id === page.chat.me;
    const remove = async () => {
      const question = pieces('remove_sure', { name: isolated(name) });
      if (!(await confirmed(question, t('remove')))) return;
      if (await told(conversation.remove(member.user_id).then(() => true))) {
        shown = shown.filter((other) => other !== member);
        show();
      }
    };
    return h(
      'li',
      { 'data-testid': 'member', 'data-user': member.user_id },
      avatar(member.user_id, name, true),
      h('span', { class: 'grow' }, isolated(name), self ? h('small', null, ` · ${t('you')}`) : null, member.role === 'owner' ? h('small', null, ` · ${t('owner')}`) : null),
      owns && !self ? iconButton('close', t('remove'), () => void remove(), { 'data-testid': 'remove-member' }) : null,
    );
  };
  const load = async () => {
    fault.hidden = true;
    try {
      const answer = await conversation.members();
      shown = Array.isArray(answer) ? answer : answer.items;
      show();
    } catch (error) {
      fault.textContent = inWords(error);
      fault.hidden = false;
    }
  };
  void load();
  const field = h('input', { class: 'input', 'aria-label': t('invite_field'), placeholder: t('new_members'), autocapitalize: 'off', spellcheck: 'false', 'data-testid': 'invite-field' });
  const form = h('form', { class: 'inline-form' }, field, h('button', { class: 'button', 'data-testid': 'invite' }, t('invite')));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const ids = idsOf(field.value);
    if (ids.length === 0) return;
    if (await told(conversation.invite(ids).then(() => true))) field.value = '';
    await load();
  });
  return h('section', null, h('h3', null, t('members')), list, fault, info.kind === 'group' ? form : null);
}

/** @param {Page} page @param {import('./types.js').OpenConversation} conversation @param {string} id @param {() => void} close */
function leaveButton(page, conversation, id, close) {
  const leave = async () => {
    if (!(await confirmed(t('leave_sure'), t('leave')))) return;
    if (await told(conversation.leave().then(() => true))) {
      close();
      page.left(id);
    }
  };
  return h('button', { type: 'button', class: 'button danger', 'data-testid': 'leave', on: { click: () => void leave() } }, t('leave'));
}
