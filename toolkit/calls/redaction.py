"""Secrets, connection strings, SQL, paths and addresses, taken out of texts."""

from __future__ import annotations

import re

_LEFT_OUT = "… [the rest is left out] …"


_LONGEST_REDACTED = 50_000


def redact(text: str) -> str:
    """Take secrets, connection strings, SQL, paths and network addresses out of a text.

    Each leaves a mark in its place: "[redacted]", "[connection]", "[sql]", "[path]", "[address]". Plain
    links, dates, numbers and prose stay, and so do mail addresses, which are mostly what a call is about.
    Of a text over 50,000 characters only the beginning is kept.
    """
    if len(text) > _LONGEST_REDACTED:
        # Up to the end of a word: half a secret might not be known as one.
        text = f"{text[:_LONGEST_REDACTED].rpartition(' ')[0]} {_LEFT_OUT}"
    for mark, pattern in _RULES.items():
        text = re.sub(pattern, mark, text)
    return text


def redact_secrets(text: str) -> str:
    """Take only secrets and connection strings out of a text, as `redact` does."""
    for mark in ("[connection]", _SECRET):
        text = re.sub(_RULES[mark], mark, text)
    return text


# Names of secrets: what follows the first ones is always one, the others occur in prose ("unexpected token: …") too.
_SURE = (
    r"pass(?:word|wort|wd|phrase|code)|kennwort|mot de passe|contraseña|wachtwoord|pwd|(?<![a-z])pw|secret"
    r"|(?:api|access|private|account|signing|subscription)[_ -]?key"
)
_LIKELY = (
    r"token|session(?:id)?|signature|credentials?|bearer|auth|jwt"
    r"|(?<![a-z])pass(?=\\*[\"'=])"
)
_HEADER = r"authorization|cookie"
# Of a name, what may come after it: "_id", "Value", "2"; not the "s" of "max_tokens", nor the "ary" of "secretary".
_REST = (
    r"(?:[_-](?!count|limit|type|usage)[\w-]{0,30}|(?<=[a-z])[A-Z]\w{0,30}|\d{1,3})?"
)
_PROSE = (
    r"(?!\s|=|(?:an?|at|be|cannot|does|empty|expected|expired|has|have|in|incorrect|invalid|is|may|missing|must|needs|no"
    r"|none|not|null|only|required|should|the|too|true|false|unknown|was|wrong)(?![\w=-])|\[redacted)"
)
# In quotes, escaped ones too; in brackets; else up to the next part of a query.
_VALUE = (
    r"""(?:\\+"[^"]*(?:"|\Z)|"(?:[^"\\]|\\[\s\S]?)*(?:"|\Z)|'(?:[^'\\]|\\[\s\S]?)*(?:'|\Z)"""
    rf"|[\[{{][^\[\]{{}}]*[\]}}]|{_PROSE}(?:[^\s&]|&(?![\w.-]+=))+)"
)
# No word, date or time: letters with digits, three parts, or as long as no word is.
_CODE = r"(?!\d{1,4}[:/-])(?:(?=\S{0,80}\d)(?=\S{0,80}[A-Za-z])|(?=[\w-]{1,80}\.[\w-]{1,80}\.\w)|(?=[\w.~+/=-]{24}))\S+"
_HEX = r"[0-9A-Fa-f]{1,4}"
# How the tokens of services begin, as gitleaks lists them (config/gitleaks.toml) and as their makers document them.
_PREFIXES = (
    r"sk-|[rsp]k_(?:live|test)_|gh[a-z]_|github_pat_|gl[a-z]{2,5}-|xox[a-z]-|xapp-|A(?:KI|SI|BI|CC)A|AIza|GOCSPX-|gsk_"
    r"|hf_|npm_|ya29\.|SG\.|eyJ|hv[bs]\.|xai-|pplx-|pypi-(?=A|[\w-]{14})|shp(?:at|ca|pa|ss)_|do[opr]_v1_|dapi(?=[0-9a-f]{16})"
    r"|AT[AC]TT3|ATBB|NR(?:AK|AL|II|JS|RA)-|PMAK-|figd_|figu_|sbp_|sb_secret_|lin_(?:api|oauth)_|r8_|ntn_"
    r"|secret_(?=\w{40})|(?:SK|AC)(?=[0-9a-f]{32})|\d{8,10}:(?=[\w-]{30})|glsa_|glc_|dp\.[a-z]{2}\.|ph[cx]_|rubygems_"
    r"|sntry[su]_|whsec_|sq0[a-z]{3}-|EAA(?=\w{20})|pat(?=\w{14}\.)|AGE-SECRET-KEY-|dckr_pat_|CFPAT-|sgp_|pul-"
    r"|nvapi-|tvly-|jina_|lsv2_|pcsk_|1//0"
)
_QUOTED = r"""(?:"[^"\n]*(?:"|\Z)|'[^'\n]*(?:'|\Z))"""
_NAME = rf"[\w.-]{{0,30}}?(?i:{_SURE}|{_LIKELY}|{_HEADER}){_REST}"
# Names and values side by side, without "=" or ":" between them.
_PAIRS = (
    # The command of a failed process, whole: any part of it may be a secret.
    r"|(\bCommand )['\[][\s\S]{1,2000}?(?= (?:returned non-zero|timed out after|died with)\b)"
    # Options of a command line, also in a list: --password V, -u name:V, -pV.
    rf"|((?<![\w-])--?(?:[a-z]{{1,20}}-){{0,3}}(?i:{_SURE}|{_LIKELY}|pass)(?:-(?!file)\w{{1,20}})?"
    rf"(?:[\"'],\s?|\s{{1,3}})){_PROSE}(?:{_QUOTED}|[^\s\"'-]\S*)"
    r"|((?<![\w-])(?:-u|--(?:proxy-)?user)(?:[\"'],\s?|=|\s{0,3})[\"']?[^\s:\"']{1,100}:)(?!\d+(?!\S))[^\s\"']+"
    r"|(\b(?:mysql|mariadb|sshpass|7z)[^\n]{0,200}?[\s\"']-p)(?=[^\s\"'])(?:[^\s\"']|(?<=-p)[\"'])+"
    r"|((?<![\w-])-p)(?!y)(?=\S{0,40}[A-Za-z])(?=\S{0,40}\d)[^\s\"',:]{4,}"
    # Elements and attributes of XML.
    rf"|(<(?:\w{{1,30}}:)?{_NAME}(?:\s[^<>]{{0,100}})?>\s{{0,9}})(?!\s)(?:<!\[CDATA\[)?(?:[^<]{{1,2000}}(?=</)|[^\s<]+\Z)"
    # Parts of a tuple: another name after the name of a secret is no secret, but the second of two is one.
    rf"|([(\[]\s?b?[\"']{_NAME}[\"'],\s?)b?{_QUOTED}(?=\s?[)\]])"
    rf"|(b?[\"']{_NAME}[\"'],\s?)(?!b?[\"'][a-z_-]*[\"'])(?:b?{_QUOTED}|\d{{3,}})"
    rf"|([\"']?(?:name|key|field|header)[\"']?\s?[:=]\s?[\"']{_NAME}[\"'],?\s{{0,3}}[\"']?value[\"']?\s?[:=]\s?){_QUOTED}"
    # Postgres: Key (api_token)=(V) already exists.
    rf"|(\bKey \([^()]{{0,200}}?(?i:{_SURE}|{_LIKELY})[^()]{{0,200}}\)=\()[^\n]*?(?=\) [a-z]|\)\.?(?:\n|\Z)|\Z)"
    rf"|((?i:\bidentified by )){_QUOTED}"
)
_SEGMENT = r"""/[^\s/"'`<>|:;,()\[\]{}\\]{1,255}"""
_SECRET = r"\1\2\3\4\5\6\7\8\9\10\11\12\13\14[redacted]"
# The mark that takes the place of what a pattern finds, in the order in which they are looked for. Each takes time in
# proportion to the text: what repeats is bounded, or ends where the next try would begin.
_RULES = {
    "": r" at 0x[0-9A-Fa-f]+|Traceback \(most recent call last\):(?:\n[ \t]+[^\n]*)*\n?",
    "[sql]": (
        r"\[SQL:[\s\S]*|\b(?:SELECT\s[^;]{0,2000}?\bFROM\s|INSERT\s+INTO\s|UPDATE\s+\S{1,200}\s+SET\s|DELETE\s+FROM\s"
        r"|MERGE\s+INTO\s|MERGE\s[^;]{0,1000}?\bSET\s|REPLACE\s+INTO\s|(?:CALL|EXEC(?:UTE)?)\s+[\w.]{1,100}\s?(?:\(|\s['@])"
        r"|(?:CREATE|DROP|ALTER|TRUNCATE)\s+(?:[A-Z]{1,20}\s+){0,3}(?:TABLE|INDEX|VIEW|DATABASE|SCHEMA|USER|ROLE)\s"
        # In lower case only what prose does not say.
        r"|(?i:select\s+(?:\*|[\w.]{1,60}(?:\s*,\s*[\w.]{1,60}){1,60})\s+from\s+(?!(?:an?|the|your)\s)"
        r"|select\s+[\w.]{1,60}\s+from\s+[\w.]{1,60}\s+(?:where|join|limit|(?:order|group)\s+by)\s"
        r"|call\s+[\w.]{1,60}\(\s?'|merge\s+into\s+\S{1,60}\s+(?:as|using)\s"
        r"|insert\s+into\s+\S{1,60}\s*(?:\(|values\s|select\s)|delete\s+from\s+\S{1,60}\s+where\s"
        r"|update\s+\S{1,60}\s+set\s+\S{1,60}\s*="
        r"|(?:create|drop|alter)\s+table\s+(?:if\s+(?:not\s+)?exists\s+)?\S{1,60}\s*(?:[(;]|(?:add|drop)\s|\Z)))"
        r"(?:'[^']*(?:'|\Z)|[^;'])*"
    ),
    "[connection]": (
        r"\b(?:(?!https?:)[A-Za-z][A-Za-z0-9+.-]{0,30}://|jdbc:)[^\s\"]+|\bhttps?://[^\s/?#@\"]{1,300}@[^\s\"]*"
        r"|(?i:\b(?:server|data source|host|driver|provider|dsn|endpoint|defaultendpointsprotocol))\s?=\s?"
        r"[^;=\n]{1,200}(?:;\s?[\w ]{1,40}=[^;\n]{0,300}){1,40};?"
    ),
    # By what it looks like, or by the name before it. A header takes the rest of its line; a name that is only likely
    # to be a secret's must stand in quotes or before "=", or what follows must look like no word.
    _SECRET: (
        r"-----BEGIN [A-Z0-9 ]{1,40}-----[\s\S]*?(?:-----END [A-Z0-9 ]{1,40}-----|\Z)"
        rf"|(?<=hooks\.slack\.com/services/)\S+|(?<![A-Za-z0-9])(?=\S{{0,80}}\d)(?:{_PREFIXES})[\w.=-]{{6,}}"
        rf"|((?i:{_HEADER}){_REST}\s{{0,3}}[:=]\s{{0,3}}){_PROSE}[^\n\"']+"
        rf"|((?i:{_SURE}|{_LIKELY}|{_HEADER}){_REST}(?:\\*[\"']\s?(?::|=>)\s?|\s{{0,3}}={{1,2}}\s{{0,3}})"
        rf"|(?i:{_SURE}){_REST}(?:\s?:\s{{0,3}}|\s(?:is\s)?(?=[\"']))){_VALUE}"
        rf"|((?i:{_LIKELY}){_REST}(?:\s?:\s?(?=\S{{5}})|\s(?=\S{{8}}))){_CODE}{_PAIRS}"
    ),
    "[path]": (
        r"""(?<=["'`])(?:~?/(?=[^"'`\n]{0,500}[/.]|[\w-]{3,100}["'`])|[A-Za-z]:[\\/](?!/)|\\\\)[^"'`\n]{1,500}(?=["'`])"""
        r"|(?<![A-Za-z0-9\\])(?:[A-Za-z]:(?:\\|/(?=[\w.$~-]))|\\{2,4}[\w.$-]{1,100}\\)"
        r"""(?:[^\\\n"'<>|:*?]{0,100}\\)*[^\s\\"'<>|:*?,;)]*|(?<![^\s"'`(\[{<=:,;|>])"""
        rf"(?:(?:~(?:[a-z][\w-]{{0,30}})?{_SEGMENT}|{_SEGMENT}{_SEGMENT})(?:{_SEGMENT})*"
        rf"|{_SEGMENT}\.[A-Za-z]\w{{0,7}}\b"
        # One part only after a word or a sign that a path follows.
        rf"|(?:(?<=: )|(?<=open )|(?<=file )|(?<=directory )|(?<=folder )|(?<=path )|(?<=read )|(?<=write )){_SEGMENT})"
        # Blanks in a part, if the path goes on behind them.
        rf"(?:(?: [\w.-]{{1,40}}){{1,3}}(?:{_SEGMENT})+|(?: [\w-]{{1,40}}){{1,2}}\.[A-Za-z]\w{{1,4}}\b)*"
        r"/?(?<![.!?])(?::\d+){0,2}"
        r"|(?<![\w./\\-])[\w./\\-]{1,200}\.pyx?(?::\d+|,? line \d+){1,2}"
    ),
    "[address]": (
        r"(?<![\w.])(?<!ersion )(?:\d{1,3}\.){3}\d{1,3}(?:/\d{1,2}\b)?(?::\d{1,5})?(?!\w|\.\d)"
        rf"|(?<![\w:.])\[?(?:(?=[0-9A-Fa-f:]{{0,40}}?\d)(?=[0-9A-Fa-f:]{{0,40}}?::|(?:{_HEX}:){{7}})"
        rf"{_HEX}(?::{{1,2}}{_HEX}){{1,7}}(?:::)?|::1)(?:%\w{{1,20}})?(?:/\d{{1,3}})?(?:\]:\d{{1,5}}|\])?(?![\w:])"
    ),
}
