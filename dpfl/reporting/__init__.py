"""Output for people: HTML pages, figures and contact sheets. No TensorFlow.

Pages are made of tables, charts and texts that other rooms compute. The room reads reports of
`dpfl.accounting`, and computes no guarantee.
"""

FOR_ROOMS = (
    'audit_page',
    'charts',
    'choice_page',
    'comparison_page',
    'gan_page',
    'html_parts',
    'plain_text',
    'plots',
    'privacy_page',
)
