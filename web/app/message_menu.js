/**
 * What one can do with a message.
 */

import { confirmed, notice, openDialog, openMenu } from './dialog.js';
import { avatar, fill, h, isolated } from './element.js';
import { inWords, told } from './errors.js';
import { fullTime } from './format.js';
import { inShort } from './summary.js';
import { t } from './words.js';

/** @typedef {import('./types.js').Message} Message */
/** @typedef {import('./types.js').Page} Page */

const QUICK = ['👍', '❤️', '😂', '😮', '😢', '🎉'];
const MORE = ['👎', '🙏', '👏', '🔥', '✅', '❌', '👀', '🤔', '😅', '😊', '😍', '😎', '😡', '😱', '🥳', '🤝', '💪', '💯', '⭐', '☕', '🍰', '🌱', '🚀', '🐛'];

/**
 * @param {HTMLElement} at
 * @param {(emoji: string) => void} onChosen
 */
export function chooseEmoji(at, onChosen) {
  const chosen = (/** @type {string} */ emoji) => {
    close();
    onChosen(emoji);
  };
  const close = openMenu(at, [], emojiRow([...QUICK, ...MORE], chosen, 'emoji-grid'));
}

/**
 * @param {string[]} emoji
 * @param {(emoji: string) => void} onChosen
 * @param {string} className
 */
function emojiRow(emoji, onChosen, className) {
  return h(
    'div',
    { class: className, role: 'none' },
    emoji.map((one) => h('button', { type: 'button', role: 'menuitem', class: 'emoji', 'aria-label': one, 'data-testid': `emoji-${one}`, on: { click: () => onChosen(one) } }, one)),
  );
}

/**
 * @param {HTMLElement} at
 * @param {Page} page
 * @param {import('./types.js').OpenConversation} conversation
 * @param {Message} message
 * @param {import('./composer.js').Composer} composer
 */
export function openMessageMenu(at, page, conversation, message, composer) {
  const own = message.sender === page.chat.me;
  const { kind, me } = conversation.info ?? {};
  // Where only the service writes, and where one no longer belongs.
  const reads = kind === 'system' || !conversation.info;
  /** @type {(import('./dialog.js').MenuItem | false)[]} */
  const items = [
    !reads && { id: 'reply', icon: 'reply', label: t('reply'), action: () => composer.replyTo(message) },
    { id: 'copy', icon: 'copy', label: t('copy'), action: () => void copy(inShort(message)) },
    own && !reads && message.kind !== 'share' && { id: 'edit', icon: 'edit', label: t('edit'), action: () => composer.edit(message) },
    own && conversation.info && { id: 'readers', icon: 'eye', label: t('readers'), action: () => showReaders(page, conversation, message) },
    (own || (kind === 'group' && me?.role === 'owner')) && !reads && { id: 'recall', icon: 'bin', danger: true, label: own ? t('recall') : t('remove_message'), action: () => void recall(conversation, message) },
  ];
  /** @type {() => void} */
  let close = () => {};
  const react = (/** @type {string} */ emoji) => {
    close();
    void told(conversation.react(message.seq, emoji, true));
  };
  close = openMenu(at, items.filter((item) => item !== false), reads ? null : emojiRow(QUICK, react, 'emoji-row'));
}

/** @param {string} text */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    notice(t('copied'));
  } catch {
    notice(t('e_unknown'), true);
  }
}

/** @param {import('./types.js').OpenConversation} conversation @param {Message} message */
async function recall(conversation, message) {
  if (await confirmed(t('recall_sure'), t('recall'))) await told(conversation.recall(message.seq));
}

/**
 * @param {Page} page
 * @param {import('./types.js').OpenConversation} conversation
 * @param {Message} message
 */
export function showReaders(page, conversation, message) {
  const list = h('ul', { class: 'people', 'data-testid': 'readers' }, h('li', null, h('span', { class: 'spinner' })));
  openDialog(t('read_who'), () => [list], { testId: 'readers-dialog' });
  conversation.readers(message.seq).then(
    (/** @type {{ items: { user_id: string, read_at: string }[] }} */ { items }) => {
      if (items.length === 0) return fill(list, h('li', { class: 'quiet' }, t('read_nobody')));
      fill(
        list,
        items.map(({ user_id: user, read_at: at }) => {
          const name = page.people.name(user);
          return h('li', null, avatar(user, name, true), isolated(name, 'grow'), h('time', { class: 'quiet', datetime: at }, fullTime(at)));
        }),
      );
    },
    (/** @type {unknown} */ error) => fill(list, h('li', { class: 'error-text' }, inWords(error))),
  );
}
