// The JSON of the contract as types: what requests take and answers hold. Types only; the routes that use them are in contract.js.

/** @typedef {'text' | 'image' | 'share' | 'system'} MessageKind */
/** @typedef {{ user_id: string, name?: string | null, avatar_url?: string | null, updated_at?: string | null }} Profile */
/** @typedef {{ id: string, position: number, mime_type: string, size: number, width: number, height: number }} MediaItem */
/** @typedef {{ id: string, mime_type: string, size: number, width: number, height: number }} Media */
/** @typedef {{ emoji: string, count: number, me?: boolean | null }} Reaction */
/** @typedef {{ type: string, id: string }} ShareReference */
/** @typedef {{ type: string, id: string, title?: string | null, url?: string | null, image_url?: string | null, deleted: boolean }} Share */
/** @typedef {{ seq: number, id: string, sender: string, kind: MessageKind, preview: string, deleted: boolean }} SeenQuote */
/** @typedef {{ seq: number, hidden: true }} HiddenQuote */
/** @typedef {SeenQuote | HiddenQuote} Quote */
/**
 * @typedef {object} Message
 * @property {string} id
 * @property {string} conversation_id
 * @property {number} seq
 * @property {number} rev
 * @property {string} sender
 * @property {string | null} [client_id]
 * @property {MessageKind} kind
 * @property {string} body
 * @property {MediaItem[]} media
 * @property {Quote | null} [reply_to]
 * @property {Share | null} [share]
 * @property {string[]} mentions
 * @property {Reaction[]} reactions
 * @property {any} [data]
 * @property {string | null} [client_sent_at]
 * @property {string} created_at
 * @property {string | null} [edited_at]
 * @property {string | null} [deleted_at]
 * @property {string | null} [deleted_by]
 */
/**
 * @typedef {object} Me one's own part of a conversation
 * @property {'owner' | 'member'} role
 * @property {string} joined_at
 * @property {number} read_seq
 * @property {string | null} [read_at]
 * @property {number} unread
 * @property {boolean} unread_more
 * @property {number} unread_mentions
 * @property {boolean} muted
 * @property {boolean} pinned
 * @property {boolean} hidden
 * @property {boolean} marked_unread
 * @property {number} cleared_to
 * @property {boolean} blocked
 */
/**
 * @typedef {object} ConversationInfo
 * @property {string} id
 * @property {'single' | 'group' | 'system'} kind
 * @property {string | null} [title]
 * @property {string | null} [owner]
 * @property {string} [peer]
 * @property {{ name?: string | null, avatar_url?: string | null } | null} [peer_profile]
 * @property {string | null} [display_name]
 * @property {'all' | 'from_join' | null} [history]
 * @property {number} member_count
 * @property {number} head_seq
 * @property {number} rev
 * @property {string} created_at
 * @property {string} updated_at
 * @property {Message | null} [last_message]
 * @property {Me | null} [me]
 */
/** @typedef {{ items: ConversationInfo[], next_cursor?: string | null, events_head: string }} ConversationPage */
/** @typedef {{ user_id: string, role: 'owner' | 'member', joined_at: string, name?: string | null, avatar_url?: string | null }} Member */
/** @typedef {{ items: Member[], next_cursor?: string | null }} MemberPage */
/** @typedef {[from: number, to: number]} SeqRange both included */
/** @typedef {{ items: Message[], has_more_before: boolean, has_more_after: boolean, head_seq: number, voids: SeqRange[] }} MessagePage */
/** @typedef {{ items: Message[], next_rev: number, has_more: boolean, head_seq: number, voids: SeqRange[] }} ChangesPage */
/** @typedef {{ state: 'accepted' | 'archived' | 'unknown', message?: Message | null }} KeyState */
/** @typedef {{ seq: number, rev: number, reactions: Reaction[] }} ReactionsOfMessage */
/** @typedef {{ count: number, items: { user_id: string, read_at: string }[] }} ReaderList */
/** @typedef {{ read_seq: number, read_at?: string | null, unread: number, unread_more: boolean }} ReadPosition */
/** @typedef {{ total: number, conversations: number, more: boolean, muted: { total: number, conversations: number } }} UnreadTotals */
/** @typedef {{ kind: 'single', peer: string } | { kind: 'group', title?: string, members: string[], history?: 'all' | 'from_join' } | { kind: 'system', key: string, members: string[], title?: string }} CreateConversation */
/**
 * @typedef {object} SendMessage
 * @property {string} [client_id]
 * @property {MessageKind} [kind]
 * @property {string} [body]
 * @property {string[]} [media]
 * @property {number} [reply_to]
 * @property {ShareReference} [share]
 * @property {string[]} [mentions]
 * @property {string} [client_sent_at]
 * @property {string} [peer]
 * @property {string} [sender]
 */
/** @typedef {{ muted?: boolean, pinned?: boolean, hidden?: boolean, marked_unread?: boolean, cleared_to?: number }} PutPreferences */
/** @typedef {{ muted: boolean, pinned: boolean, hidden: boolean, marked_unread: boolean, cleared_to: number, blocked?: boolean }} PreferencesData */
/** @typedef {{ user_id: string, created_at: string }} Block */
/** @typedef {{ items: Block[], next_cursor?: string | null }} BlockPage */
/** @typedef {{ items: Message[], next_cursor?: string | null }} SearchPage */
/** @typedef {{ reason: 'trimmed' | 'future' | 'lost', head: string, spread_ms: number }} Resync */
/** @typedef {{ events: ChatEvent[], next: string, resync?: Resync | null }} PollAnswer */
/** @typedef {{ ticket: string, expires_in: number }} Ticket */
/** @typedef {{ device?: string | null, resumed_from?: string | null, head: string, server_time: string }} Hello */
/** @typedef {{ endpoint: string, keys: { p256dh: string, auth: string }, show_preview?: boolean }} PushSubscriptionBody */
/** @typedef {{ user_id: string, read_seq: number, read_at: string }} ReadPlace */
/** @typedef {{ user_id: string, by: string, seq: number }} MemberData */
/**
 * @template T, D
 * @typedef {{ id?: string, type: T, version: number, occurred_at: string, conversation_id: string, rev: number, data: D }} EventOf
 */
/**
 * @typedef {EventOf<'conversation.created', { conversation: ConversationInfo }>
 *   | EventOf<'conversation.imported', { imported: number, first_seq?: number | null, last_seq?: number | null, head_seq: number }>
 *   | EventOf<'conversation.renamed', { title: string, by: string, seq: number }>
 *   | EventOf<'conversation.dissolved', { by: string, seq: number }>
 *   | EventOf<'member.joined', MemberData> | EventOf<'member.left', MemberData> | EventOf<'member.removed', MemberData>
 *   | EventOf<'owner.changed', { owner: string, by: string, seq: number }>
 *   | EventOf<'message.created', { message: Message }> | EventOf<'message.edited', { message: Message }> | EventOf<'message.deleted', { message: Message }>
 *   | EventOf<'message.resequenced', { old_seq: number, message: Message }>
 *   | EventOf<'reaction.changed', { seq: number, reactions: Reaction[] }>
 *   | EventOf<'read.advanced', ReadPlace & { positions?: ReadPlace[] }>
 *   | EventOf<'preferences.changed', PreferencesData>
 *   | EventOf<'typing.updated', { user_id: string, typing: boolean }>} ChatEvent
 */

export {};
