"""Further data: texts of many works, tables, reviews, pictures."""
